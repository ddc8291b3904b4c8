#!/bin/sh
# The user stays, as files of it may.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
fi
