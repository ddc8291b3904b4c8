package doctor

import (
	"context"
	"errors"
)

func redisPersistence(ctx context.Context, e *Exam) ([]Finding, error) {
	return eachMaster(ctx, e, func(i *info) (all []Finding) {
		if i.value("aof_enabled") == "1" {
			all = append(all, found(Warning, "the cache writes an append-only file, which it does not need: each write waits for the disk", i.addr+": aof_enabled 1",
				"set appendonly no, if nothing but a cache is in it"))
		}
		if i.value("rdb_last_bgsave_status") == "err" || i.value("aof_last_write_status") == "err" {
			all = append(all, found(Critical, "Redis cannot write to its disk, and may refuse writes (MISCONF)",
				i.addr+": rdb_last_bgsave_status "+i.values["rdb_last_bgsave_status"]+", aof_last_write_status "+i.values["aof_last_write_status"], "free its disk, or turn persistence off"))
		}
		snapshots, err := i.client.ConfigGet(ctx, "save").Result()
		if _, told := snapshots["save"]; err == nil && !told {
			err = errors.New("it does not tell its setting save")
		}
		switch {
		case err != nil:
			all = append(all, unseen(i.addr+": whether it makes snapshots", err, ""))
		case snapshots["save"] != "":
			all = append(all, found(Info, "the cache makes snapshots; after a restart from one, workers unlink again what it has forgotten",
				i.addr+": save "+snapshots["save"], `set save "", if nothing but a cache is in it`))
		}
		if len(all) == 0 {
			all = append(all, well("%s: neither an append-only file nor snapshots", i.addr))
		}
		return all
	}, "persistence")
}
