#!/bin/sh
# Runs the words it is given. If they are the server or its options, it runs as the user bobbin with
# protected mode off; anything else runs as it is.
set -e

case "${1-}" in
-* | *.conf) set -- bobbin-server "$@" ;;
esac

case "${1-}" in
bobbin-server | redis-server | valkey-server) ;;
*) exec "$@" ;;
esac

if [ "$(id -u)" = 0 ]; then
	# What another user wrote, such as a snapshot that was copied in. Links are not followed.
	find . -xdev ! -user bobbin -exec chown -h bobbin:bobbin '{}' +
	exec setpriv --reuid bobbin --regid bobbin --clear-groups --no-new-privs "$0" "$@"
fi

# Data may be secret; a umask other than the usual one was chosen by somebody.
if [ "$(umask)" = 0022 ]; then
	umask 0077
fi

case "${2-}" in
# These start no server, and take no options.
-h | -v | --help | --version | --check-* | --test-memory) exec "$@" ;;
esac

# A client of a container is never on the same machine, so protected mode would let nobody in. What
# the options or the file say of it holds; a file that includes others may say it there.
for word in "$@"; do
	if [ "$word" = --protected-mode ]; then
		exec "$@"
	fi
done
# A configuration that comes by the standard input cannot be looked at; it is for itself.
if [ "${2-}" = - ]; then
	exec "$@"
fi
if [ -f "${2-}" ] && grep -Eiqs '^[[:space:]]*(protected-mode|include)[[:space:]]' -- "$2"; then
	exec "$@"
fi
exec "$@" --protected-mode no
