-- What migrations 1 to 32 of commit 0a7db312a0ab1d3d10afdd9b97a811c9246093be left on MySQL 9.7.4:
-- SHOW CREATE TABLE of each table, without the character set of cache_outbox_version, which is that
-- of the database, and the rows of the migrations.

CREATE TABLE `cache_outbox` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `entity` varchar(65) COLLATE utf8mb4_bin NOT NULL,
  `entity_id` varchar(256) COLLATE utf8mb4_bin NOT NULL,
  `params` mediumtext COLLATE utf8mb4_bin,
  `trace` varchar(129) COLLATE utf8mb4_bin DEFAULT '',
  `created_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  PRIMARY KEY (`id`),
  CONSTRAINT `cache_outbox_params_is_json` CHECK (json_valid(`params`))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_audit` (
  `id` bigint unsigned NOT NULL DEFAULT (uuid_short()) COMMENT 'in no order',
  `at` timestamp(6) NOT NULL DEFAULT (sysdate(6)),
  `account` varchar(400) COLLATE utf8mb4_bin NOT NULL DEFAULT (current_user()) COMMENT 'user@host of the database',
  `claimed_by` varchar(255) COLLATE utf8mb4_bin NOT NULL COMMENT 'user@host of the operating system, as the program says',
  `action` varchar(32) COLLATE utf8mb4_bin NOT NULL,
  `arguments` mediumtext COLLATE utf8mb4_bin NOT NULL COMMENT 'a JSON object',
  `row_count` bigint unsigned NOT NULL COMMENT 'rows that it was done to',
  PRIMARY KEY (`id`),
  KEY `at` (`at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_control` (
  `name` varchar(16) COLLATE utf8mb4_bin NOT NULL,
  `who` varchar(255) COLLATE utf8mb4_bin NOT NULL,
  `reason` text COLLATE utf8mb4_bin NOT NULL,
  `began_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `ends_at` datetime(6) DEFAULT NULL COMMENT 'null: not by itself',
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_dead` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `entity` varchar(65) COLLATE utf8mb4_bin NOT NULL,
  `entity_id` varchar(256) COLLATE utf8mb4_bin NOT NULL,
  `params` mediumtext COLLATE utf8mb4_bin,
  `trace` varchar(129) COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  `created_at` datetime(6) NOT NULL,
  `died_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `first_id` bigint unsigned NOT NULL,
  `attempts` int unsigned NOT NULL DEFAULT '0',
  `repeated` tinyint unsigned NOT NULL DEFAULT '0',
  `reason` varchar(32) COLLATE utf8mb4_bin NOT NULL,
  `error` text COLLATE utf8mb4_bin NOT NULL,
  `map_version` varchar(12) COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (`id`),
  KEY `reason` (`reason`),
  KEY `died` (`died_at`),
  KEY `first_id` (`first_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_delayed` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `entity` varchar(65) COLLATE utf8mb4_bin NOT NULL,
  `entity_id` varchar(256) COLLATE utf8mb4_bin NOT NULL,
  `params` mediumtext COLLATE utf8mb4_bin,
  `trace` varchar(129) COLLATE utf8mb4_bin DEFAULT '',
  `created_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `due_at` datetime(6) NOT NULL,
  `first_id` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'id in cache_outbox, 0 if it never was there',
  `attempts` int unsigned NOT NULL DEFAULT '0',
  `repeated` tinyint unsigned NOT NULL DEFAULT '0' COMMENT '1: a repeat, which does not repeat again',
  `reason` varchar(32) COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of the last failure',
  `error` text COLLATE utf8mb4_bin COMMENT 'of the last failure',
  `retry_us` bigint unsigned DEFAULT NULL COMMENT 'of a retry: for how long a worker has delayed it, microseconds',
  PRIMARY KEY (`id`),
  KEY `due` (`due_at`),
  KEY `first_id` (`first_id`),
  CONSTRAINT `cache_outbox_delayed_params_is_json` CHECK (json_valid(`params`))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_journal` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `worker` varchar(64) COLLATE utf8mb4_bin NOT NULL,
  `settled_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `row_count` int unsigned NOT NULL,
  `map_version` varchar(12) COLLATE utf8mb4_bin NOT NULL,
  `hashes` mediumblob NOT NULL,
  `body` longblob NOT NULL,
  `epoch` varchar(26) COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'empty: not protected by a beacon',
  `beat` bigint unsigned NOT NULL DEFAULT '0',
  `born_us` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'microseconds since 1970, 0: not known',
  `journey` mediumblob COMMENT 'null: not known',
  PRIMARY KEY (`id`),
  KEY `settled` (`settled_at`),
  KEY `beats` (`epoch`,`beat`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_locks` (
  `name` varbinary(255) NOT NULL,
  `token` binary(16) NOT NULL,
  `minted_at` datetime(6) NOT NULL,
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_minutes` (
  `minute` int unsigned NOT NULL COMMENT 'since 1970, of the database''s clock; of an hour, its first',
  `worker` char(26) COLLATE utf8mb4_bin NOT NULL COMMENT 'as cache_outbox_workers.id; empty: all workers, a whole hour',
  `batches` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'settled, with a key or tag',
  `rows_settled` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'with a key or tag; no scheduled rows, no repeats',
  `within_100ms` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'of rows_settled: from visible to unlinked',
  `within_1s` bigint unsigned NOT NULL DEFAULT '0',
  `within_10s` bigint unsigned NOT NULL DEFAULT '0',
  `dead` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'rows that became dead letters, not in rows_settled',
  `sampled` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'of batches: with a check that is not unknown',
  `entry_batches` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'of sampled: with an entry found',
  `stale_batches` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'of sampled: with a stale entry found',
  `checked` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'keys of batches: with_entry, absent and unknown',
  `with_entry` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'an entry with a lease time was found, stale or not',
  `stale` bigint unsigned NOT NULL DEFAULT '0',
  `absent` bigint unsigned NOT NULL DEFAULT '0',
  `unknown` bigint unsigned NOT NULL DEFAULT '0',
  `repaired` bigint unsigned NOT NULL DEFAULT '0',
  `shadow_reads` bigint unsigned NOT NULL DEFAULT '0',
  `confirmed` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'of shadow_reads: differences',
  `w_sampled` double NOT NULL DEFAULT '0' COMMENT 'w_: of whole hours, weighted by batches / sampled of each minute',
  `w_entry_batches` double NOT NULL DEFAULT '0',
  `w_stale_batches` double NOT NULL DEFAULT '0',
  `w_known` double NOT NULL DEFAULT '0' COMMENT 'of checked without unknown',
  `w_with_entry` double NOT NULL DEFAULT '0',
  `w_stale` double NOT NULL DEFAULT '0',
  `ww_sampled` double NOT NULL DEFAULT '0' COMMENT 'ww_: with the square of the weight',
  `ww_entry_batches` double NOT NULL DEFAULT '0',
  `waiting` int unsigned DEFAULT NULL COMMENT 'most rows of cache_outbox that waited at a look, counted up to 10000; NULL: no look',
  `oldest_ms` bigint unsigned DEFAULT NULL COMMENT 'the longest that a row had waited at a look',
  `entities` text COLLATE utf8mb4_bin COMMENT 'JSON: rows_settled and within_1s by entity, the 50 most frequent; empty name: others',
  PRIMARY KEY (`minute`,`worker`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_shadow` (
  `id` binary(20) NOT NULL COMMENT 'SHA-1 of cache_key and of the entry',
  `cache_key` varbinary(1024) NOT NULL,
  `tags` text COLLATE utf8mb4_bin NOT NULL COMMENT 'of the entry: a JSON list',
  `entities` text COLLATE utf8mb4_bin NOT NULL COMMENT 'whose rows reach the key by the map: a JSON list',
  `outcome` varchar(16) COLLATE utf8mb4_bin NOT NULL COMMENT 'no_row: nothing was unlinked since leased_at; survived: it was',
  `process` varchar(128) COLLATE utf8mb4_bin NOT NULL COMMENT 'that reported it',
  `leased_at` datetime(6) NOT NULL COMMENT 'lease time of the entry, of Redis''s clock',
  `loaded_at` datetime(6) NOT NULL COMMENT 'of the load that differs, of Redis''s clock',
  `confirmed_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  PRIMARY KEY (`id`),
  KEY `confirmed` (`confirmed_at`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_source` (
  `one` tinyint unsigned NOT NULL DEFAULT '1',
  `id` char(32) COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (`one`),
  CONSTRAINT `cache_outbox_source_is_one` CHECK ((`one` = 1))
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_stale` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `found_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `worker` varchar(64) COLLATE utf8mb4_bin NOT NULL,
  `name` varbinary(1024) NOT NULL COMMENT 'the key, cut',
  `row_id` bigint unsigned NOT NULL COMMENT 'in cache_outbox, of the invalidation',
  `entity` varchar(65) COLLATE utf8mb4_bin NOT NULL,
  `entity_id` varchar(256) COLLATE utf8mb4_bin NOT NULL,
  `trace` varchar(129) COLLATE utf8mb4_bin NOT NULL,
  `epoch` varchar(26) COLLATE utf8mb4_bin NOT NULL COMMENT 'of the batch in cache_outbox_journal',
  `beat` bigint unsigned NOT NULL,
  `leased_us` bigint unsigned NOT NULL COMMENT 'microseconds since 1970, by the clock of Redis, 0: not known',
  `unlinked_us` bigint unsigned NOT NULL COMMENT 'before the UNLINK, by the same clock',
  `after_ms` int unsigned NOT NULL COMMENT 'when it was found, after the UNLINK',
  `ttl_ms` bigint unsigned NOT NULL COMMENT 'that was left, 0: not known',
  `held` tinyint NOT NULL COMMENT 'it was there during a hold',
  `repaired` tinyint NOT NULL COMMENT 'the worker unlinked it',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_summaries` (
  `bucket` tinyint unsigned NOT NULL COMMENT '0 to 63: names, 64: patterns, 254: the block itself, 255: whose turn it is',
  `last_id` bigint unsigned NOT NULL COMMENT 'in cache_outbox_journal, the last batch of the block',
  `after_id` bigint unsigned NOT NULL COMMENT 'the block has all batches beyond this id',
  `settled_at` datetime(6) NOT NULL COMMENT 'of the last batch, which tells whether it is still the same one',
  `items` mediumblob NOT NULL,
  PRIMARY KEY (`bucket`,`last_id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_sweeper` (
  `name` varchar(8) COLLATE utf8mb4_bin NOT NULL COMMENT 'lead or pass',
  `worker` varchar(64) COLLATE utf8mb4_bin NOT NULL,
  `began_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `noted_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `patterns` int unsigned NOT NULL DEFAULT '0' COMMENT 'of the pass',
  `scanned` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'names that it has met',
  `total` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'names that there were; 0: not known',
  `unlinked` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'names that it has removed',
  `unsure` tinyint NOT NULL DEFAULT '0' COMMENT '1: nobody knows how long it takes',
  `error` text COLLATE utf8mb4_bin COMMENT 'why sweeps fail',
  PRIMARY KEY (`name`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_sweeps` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `kind` varchar(8) COLLATE utf8mb4_bin NOT NULL COMMENT 'pattern or set',
  `name` mediumblob NOT NULL,
  `requested_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `not_before` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)) COMMENT 'later than requested_at once Redis refused it',
  `attempts` int unsigned NOT NULL DEFAULT '0' COMMENT 'how often Redis refused it',
  `error` text COLLATE utf8mb4_bin COMMENT 'of the last refusal',
  `swept_at` datetime(6) DEFAULT NULL COMMENT 'null: not carried out yet',
  `hold_ms` int unsigned NOT NULL DEFAULT '0' COMMENT 'milliseconds',
  `first_low` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'least id in cache_outbox of the rows that asked, 0: no row',
  `first_high` bigint unsigned NOT NULL DEFAULT '0' COMMENT 'greatest id of them',
  PRIMARY KEY (`id`),
  KEY `kind` (`kind`),
  KEY `first_high` (`first_high`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
CREATE TABLE `cache_outbox_version` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `version_id` bigint NOT NULL,
  `is_applied` tinyint(1) NOT NULL,
  `tstamp` datetime DEFAULT CURRENT_TIMESTAMP,
  `oldest` bigint NOT NULL DEFAULT '21' COMMENT 'version of the oldest code that may run on the schema',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB;
CREATE TABLE `cache_outbox_workers` (
  `id` char(26) COLLATE utf8mb4_bin NOT NULL COMMENT 'random, of the process: two may have one name',
  `name` varchar(64) COLLATE utf8mb4_bin NOT NULL,
  `state` varchar(32) COLLATE utf8mb4_bin NOT NULL COMMENT 'working, starting, healing, paused, stopped, or the state of an outage',
  `error` text COLLATE utf8mb4_bin COMMENT 'of the outage',
  `since` datetime(6) NOT NULL COMMENT 'of the state',
  `seen_at` datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
  `drained_at` datetime(6) DEFAULT NULL COMMENT 'when it last found no more rows to claim',
  `map_version` varchar(64) COLLATE utf8mb4_bin NOT NULL,
  `map_error` text COLLATE utf8mb4_bin COMMENT 'why the file of the map as it is now is not in use',
  `channel` text COLLATE utf8mb4_bin NOT NULL COMMENT 'of the map: where it publishes',
  `format` varchar(16) COLLATE utf8mb4_bin NOT NULL COMMENT 'of its messages',
  `map_warning` text COLLATE utf8mb4_bin COMMENT 'why the next release refuses the map',
  `stalled` varchar(16) COLLATE utf8mb4_bin DEFAULT NULL COMMENT 'held or behind: why rows make no progress',
  `stall_error` text COLLATE utf8mb4_bin COMMENT 'which rows, since when, and what to do',
  `heavy_since` datetime(6) DEFAULT NULL COMMENT 'since when it has heavy rows to process',
  `lease_ms` int unsigned DEFAULT NULL COMMENT 'the longest lease that a reader may have taken under its map; NULL: unknown',
  `announced_at` datetime(6) DEFAULT NULL COMMENT 'since when readers find the lease of its map; NULL: not yet',
  `channels` text COLLATE utf8mb4_bin COMMENT 'JSON: where it publishes, and in which format; adopted: for the sake of other workers',
  PRIMARY KEY (`id`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin;
INSERT INTO cache_outbox_source (one, id) VALUES (1, '0123456789abcdef0123456789abcdef');
INSERT INTO cache_outbox_version (version_id, is_applied) VALUES (0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1), (13, 1), (14, 1), (15, 1), (16, 1), (17, 1), (18, 1), (19, 1), (20, 1), (21, 1), (22, 1), (23, 1), (24, 1), (25, 1), (26, 1), (27, 1), (28, 1), (29, 1), (30, 1), (31, 1), (32, 1);
