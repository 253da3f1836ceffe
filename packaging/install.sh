#!/bin/sh
# Installs device-agent from its apt repository. --help shows the options.
# All of it is in functions: a download that was cut off runs nothing.
set -eu

main() {
	url='@URL@' keyring='@KEYRING@' made='@MADE@'
	version='' is_dry='' has_join='' join=''
	while [ $# -gt 0 ]; do
		case $1 in
		--dry-run) is_dry=yes ;;
		--join) has_join=yes ;;
		--version)
			[ $# -gt 1 ] || stop '--version needs a version, such as --version 1.0.0'
			shift
			version=$1
			;;
		-h | --help) help && return ;;
		*) stop "unknown option $1. --help shows the options." ;;
		esac
		shift
	done
	case $version in *[!A-Za-z0-9.+~-]*) stop "$version is not a version. Use a version such as 1.0.0." ;; esac
	case $url in
	*:/*) ;;
	*) stop "this copy has no address. Use the install.sh of your repository: npm run package -- --repository makes it." ;;
	esac
	check_system
	if [ -n "$is_dry" ]; then
		say "this would add the repository $url to $sources, with the keys in $keys"
		say "this would install device-agent${version:+ $version} ($arch) and device-agent-archive-keyring with apt-get"
		[ -z "$has_join" ] || say 'this would run device-agent join'
		say 'nothing was changed (--dry-run)'
		return
	fi
	if [ "$(id -u)" = 0 ]; then
		sudo=''
	elif command -v sudo >/dev/null; then
		sudo=sudo
	else
		stop 'root is needed. Run this as root.'
	fi
	[ -z "$has_join" ] || read_join
	add_repository
	install_packages
	check_version
	if [ -n "$join" ]; then
		# By stdin: command lines are visible to every user of the machine.
		printf '%s\n' "$join" | $sudo device-agent join -
	elif [ -n "$has_join" ]; then
		$sudo device-agent join </dev/tty
	fi
}

help() {
	cat <<-'END'
		install.sh [OPTIONS]: install or upgrade device-agent from its apt repository

		  --dry-run    check this system and say what would be done
		  --version V  install this version, also an older version
		  --join       join a gateway afterwards; the join string is read from stdin or asked for
		  --help       this text
	END
}

say() { printf 'device-agent: %s\n' "$*"; }
stop() {
	printf 'device-agent: %s\n' "$*" >&2
	exit 1
}

# Sets arch, sources and keys, or says why this system is not suited and what to do.
check_system() {
	sources=/etc/apt/sources.list.d/device-agent.sources
	keys=/usr/share/keyrings/device-agent-archive-keyring.gpg
	image='Use the container image.'
	[ "$(uname -s)" = Linux ] || stop "$(uname -s) is not supported. Use Linux."
	machine=$(uname -m)
	case $machine in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	armv* | i?86) stop "there is no package for $machine. Install a 64-bit system: Raspberry Pi 3 and newer can run one." ;;
	*) stop "there is no package for $machine. Use a machine with x86_64 or arm64." ;;
	esac
	# The kernel can be 64-bit while all programs are 32-bit, as on some Raspberry Pi systems.
	userland=$arch
	! command -v dpkg >/dev/null || userland=$(dpkg --print-architecture)
	[ "$(getconf LONG_BIT 2>/dev/null || echo 64)" != 32 ] || userland=32-bit
	[ "$userland" = "$arch" ] ||
		stop "the kernel is $arch, but the programs of this system are $userland. Install a 64-bit system."
	glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | cut -d ' ' -f 2) || glibc=''
	[ -n "$glibc" ] || stop "this system has no glibc (musl, as Alpine). $image"
	is_at_least "$glibc" 2.34 ||
		stop "glibc $glibc is too old: 2.34 is needed. Upgrade to Debian 12, Ubuntu 22.04 or newer. $image"
	command -v apt-get >/dev/null ||
		stop "this system has no apt. Use the archive for linux-$arch (.tar.gz), or the container image."
	[ "$(date +%s)" -ge "$made" ] ||
		stop "the clock is wrong: it says $(date +%Y-%m-%d). Set it with: sudo date --set 'YYYY-MM-DD HH:MM'"
}

is_at_least() { [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }

# Reads stdin, unless it is a terminal or was this script. Without text there, device-agent asks on the terminal.
read_join() {
	[ -t 0 ] || join=$(cat)
	[ -n "$join" ] || (: </dev/tty) 2>/dev/null ||
		stop "there is no join string on stdin. Use: printf %s \"\$JOIN\" | sh install.sh --join"
}

# A repository that is not signed with the key of this script leaves no trace.
add_repository() {
	# apt reads the keys as a user of its own: that user may be barred from TMPDIR.
	work=$(mktemp -d /tmp/device-agent.XXXXXXXX)
	trap 'rm -rf "$work"' EXIT
	chmod 755 "$work"
	printf %s "$keyring" | base64 -d >"$work/keys.gpg"
	chmod 644 "$work/keys.gpg"
	sources_with "$work/keys.gpg" >"$work/trial.sources"
	sources_with "$keys" >"$work/device-agent.sources"
	say "repository $url"
	# Installed keys can be newer than the keys of this copy: they stay while they fit.
	if [ ! -e "$keys" ] || ! update "$work/device-agent.sources" 2>/dev/null; then
		update "$work/trial.sources" ||
			stop "the repository $url could not be read, see above. Check the network and the clock ($(date +%Y-%m-%d)), then try again. Nothing was changed."
		$sudo install -D -m 644 "$work/keys.gpg" "$keys"
	fi
	$sudo install -D -m 644 "$work/device-agent.sources" "$sources"
	update "$sources"
}

sources_with() {
	printf 'Types: deb\nURIs: %s\nSuites: stable\nComponents: main\nArchitectures: %s\nSigned-By: %s\n' "$url" "$arch" "$1"
}

# Reads only the lists of this repository.
update() {
	$sudo apt-get -qq update -o Dir::Etc::sourcelist="$1" -o Dir::Etc::sourceparts=- \
		-o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any </dev/null
}

# Settings that were changed stay. An older version is only installed if it was asked for.
install_packages() {
	# First and again, because the keys of this copy may be older, and device-agent may be held.
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y --reinstall install device-agent-archive-keyring </dev/null
	$sudo env DEBIAN_FRONTEND=noninteractive apt-get -q -y ${version:+--allow-downgrades} \
		-o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
		install "device-agent${version:+=$version}" </dev/null
}

# A newer version of device-agent update stays in place when an older package is installed.
check_version() {
	running=$(device-agent --version)
	[ -z "$version" ] || [ "$(in_debian "$running")" = "$(in_debian "$version")" ] ||
		stop "the package $version is installed, but $running from device-agent update runs. To run $version, which may not read newer data: sudo rm /opt/device-agent/current && sudo systemctl restart device-agent"
	say "installed: device-agent $running"
}

# 1.1.0-rc.1 of the program is 1.1.0~rc.1 for dpkg.
in_debian() { printf %s "$1" | tr - '~'; }

{ main "$@"; }
