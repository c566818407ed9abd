#!/usr/bin/env bash
# label: slow
# seconds: 3600
# 200 kills: kills.sh says of what.
KILLS=${KILLS:-200} exec bash "$(dirname "$0")/kills.sh" "$@"
