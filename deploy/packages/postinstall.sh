#!/bin/sh
# Makes the user of the service, and restarts a worker that runs after an upgrade. An installation
# starts nothing: a worker needs a map and the addresses of its servers first.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers unstale.conf
elif ! getent passwd unstale >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir / --shell /usr/sbin/nologin unstale
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart unstale.service
fi
