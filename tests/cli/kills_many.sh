#!/usr/bin/env bash
# label: slow
# seconds: 3600
# kills.sh with 200 kills.
KILLS=${KILLS:-200} exec bash "$(dirname "$0")/kills.sh" "$@"
