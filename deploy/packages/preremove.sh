#!/bin/sh
# Stops the worker on removal, not on an upgrade: dpkg says "upgrade" then, and rpm 1.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
	if [ -d /run/systemd/system ]; then
		systemctl --quiet disable --now unstale.service
	fi
fi
