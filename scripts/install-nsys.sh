#!/bin/sh
# Install NVIDIA Nsight Systems (`nsys`) on Debian bookworm or later, without any driver package.
#
#   scripts/install-nsys.sh [PREFIX]      default PREFIX: /opt/nsight-systems
#
# Debian keeps nsys in `non-free`. Its packages depend on the NVIDIA driver, which replaces system GL libraries; nsys itself
# needs three small libraries. So this unpacks the two packages into PREFIX and links the binary to /usr/local/bin/nsys.
set -eu

prefix=${1:-/opt/nsight-systems}
root=$prefix/usr/lib/x86_64-linux-gnu/nsight-systems
nsys=$root/target-linux-x64/nsys

if [ -x "$nsys" ] && [ -x /usr/local/bin/nsys ]; then
    "$nsys" --version
    exit 0
fi

if [ "$(id -u)" != 0 ]; then
    echo "install-nsys: needs root, for apt-get and /usr/local/bin; run it with sudo" >&2
    exit 1
fi

# `non-free` is read from a list of our own, so that the machine's own lists stay as they are.
mirror=$(sed -n 's/^URIs: *\(.*debian\/*\)$/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
: "${mirror:=$(sed -n 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*debian\/\{0,1\}\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)}"
if [ -z "$mirror" ]; then
    echo "install-nsys: no Debian mirror in /etc/apt; this script knows Debian only. See NVIDIA's installation guide." >&2
    exit 1
fi
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
cat >/etc/apt/sources.list.d/gpuprof-nsys.sources <<SOURCES
Types: deb
URIs: $mirror
Suites: $release
Components: contrib non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES

apt-get update -qq
apt-get install -y -qq --no-install-recommends libssh-4 libpfm4 libglib2.0-0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(cd "$work" && apt-get download -qq nsight-systems nsight-systems-target)
mkdir -p "$prefix"
for package in "$work"/*.deb; do
    dpkg -x "$package" "$prefix"
done

# The importer, which turns the raw capture into a report, is looked for beside the target; without this link only an
# unreadable .qdstrm appears.
ln -sfn "$prefix/usr/lib/nsight-systems/host-linux-x64" "$root/host-linux-x64"
ln -sfn "$(ldconfig -p | sed -n 's/.*libssh\.so\.4 .*=> //p' | head -n 1)" "$root/host-linux-x64/libssh.so"
ln -sfn "$nsys" /usr/local/bin/nsys
nsys --version
