#!/bin/bash
# Installs Debian packages for ./dev without leaving a service behind: no PostgreSQL cluster, nothing started.
# usage: install_packages.sh PACKAGE…   (as root)
set -euo pipefail

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# A new postgresql-15 would make and start a cluster named main. An installation that is already there keeps its ways.
if ! is_installed postgresql-common; then
  mkdir -p /etc/postgresql-common/createcluster.d
  echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/faultline.conf
fi

# Debian asks policy-rc.d whether a package may start its service.
if [ ! -e /usr/sbin/policy-rc.d ]; then
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
  chmod +x /usr/sbin/policy-rc.d
fi
had_pgbouncer=$(is_installed pgbouncer && echo yes || echo no)

export DEBIAN_FRONTEND=noninteractive
apt_get() {
  apt-get -q -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" </dev/null
}
apt_get update
apt_get install -y --no-install-recommends "$@"

# Tests start their own pgbouncer; the packaged service shall not come up at the next boot.
if [ "$had_pgbouncer" = no ] && is_installed pgbouncer && [ -d /run/systemd/system ]; then
  systemctl disable pgbouncer.service
fi
