#!/bin/sh
# Install Chromium from Debian, for the tests that open `gpuprof html`'s page. Needs root.
set -eu
if command -v chromium >/dev/null; then
    exit 0
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
