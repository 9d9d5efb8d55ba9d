#!/bin/sh
# Install NVIDIA Nsight Systems (`nsys`) on Debian bookworm or later, without any driver package.
#
#   scripts/install-nsys.sh [SUITE]      default: this machine's release, as /usr/local/bin/nsys
#                                        another one (trixie, say), as /usr/local/bin/nsys-SUITE: Debian 12 has 2022.4, 13 has 2023.4
#   BIN=DIR scripts/install-nsys.sh      the link in another directory
#
# Debian keeps nsys in `non-free`. Its packages depend on the NVIDIA driver, which replaces system GL libraries; nsys itself
# needs three small libraries. So this unpacks the two packages below /opt and links the binary.
set -eu

release=$(. /etc/os-release && echo "$VERSION_CODENAME")
suite=${1:-$release}
prefix=/opt/nsight-systems/$suite
root=$prefix/usr/lib/x86_64-linux-gnu/nsight-systems
nsys=$root/target-linux-x64/nsys
link=${BIN:-/usr/local/bin}/nsys
[ "$suite" = "$release" ] || link=$link-$suite

mkdir -p "$(dirname "$link")"
if [ -e "$prefix/.ready" ]; then
    ln -sfn "$nsys" "$link"
    "$link" --version
    exit 0
fi

if [ "$(id -u)" != 0 ]; then
    echo "install-nsys: needs root, for apt-get and /usr/local/bin; run it with sudo" >&2
    exit 1
fi

mirror=$(sed -n 's/^URIs: *\(.*debian\/*\)$/\1/p' /etc/apt/sources.list.d/debian.sources 2>/dev/null | head -n 1)
: "${mirror:=$(sed -n 's/^deb  *\(\[[^]]*\] *\)\{0,1\}\([^ ]*debian\/\{0,1\}\) .*/\2/p' /etc/apt/sources.list 2>/dev/null | head -n 1)}"
if [ -z "$mirror" ]; then
    echo "install-nsys: no Debian mirror in /etc/apt; this script knows Debian only. See NVIDIA's installation guide." >&2
    exit 1
fi

apt-get update -qq
apt-get install -y -qq --no-install-recommends libssh-4 libpfm4 libglib2.0-0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# apt drops its privileges to download.
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/packages"
chmod 777 "$work/packages"
# Lists of our own, so that the machine's stay as they are.
cat >"$work/nsys.sources" <<SOURCES
Types: deb
URIs: $mirror
Suites: $suite
Components: contrib non-free
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES
own_apt() {
    apt-get -qq -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$work" -o Dir::State::Lists="$work/lists" \
        -o pkgCacheFile= -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"
}
own_apt update
(cd "$work/packages" && own_apt download nsight-systems nsight-systems-target)
mkdir -p "$prefix"
for package in "$work"/packages/*.deb; do
    dpkg -x "$package" "$prefix"
done

# The importer, which turns the raw capture into a report, is looked for beside the target; without this link only an
# unreadable .qdstrm appears.
ln -sfn "$prefix/usr/lib/nsight-systems/host-linux-x64" "$root/host-linux-x64"
ln -sfn "$(ldconfig -p | sed -n 's/.*libssh\.so\.4 .*=> //p' | head -n 1)" "$root/host-linux-x64/libssh.so"
# `nsys stats` of 2023.4 looks for its Python modules beside the importer.
mkdir -p "$root/host-linux-x64/python/lib"
ln -sf "$root"/target-linux-x64/python/lib/*.py "$root/host-linux-x64/python/lib/"
touch "$prefix/.ready"
ln -sfn "$nsys" "$link"
"$link" --version
