#!/bin/bash
# Fails on Debian packages that lintian finds errors in, or warns of. What is meant to be as it is stands in
# tools/debian/PACKAGE.lintian-overrides, with the reason.
# usage: check_packages.sh FILE.deb…
exec lintian --no-cfg --tag-display-limit 0 --fail-on error,warning "$@"
