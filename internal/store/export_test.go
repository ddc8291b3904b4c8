package store

// SmallBlocks sets the number of batches in a block of the journal.
func (s *Summaries) SmallBlocks(batches int) { s.blocks.batches = batches }
