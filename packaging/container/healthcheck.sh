#!/bin/sh
# Healthy is a server that answers PING. HEALTHCHECK_OPTIONS has words for bobbin-cli, such as
# `-p 7000` or `--tls --cacert /tls/ca.crt`.
# shellcheck disable=SC2086 # These are words.
answer=$(bobbin-cli -t 2 ${HEALTHCHECK_OPTIONS-} PING 2>&1) || true
case "$answer" in
# A server that wants a password is well.
PONG | *NOAUTH*) exit 0 ;;
*) echo "$answer"; exit 1 ;;
esac
