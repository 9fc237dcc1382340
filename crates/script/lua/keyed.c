/*
** See keyed.h.
** Part of Bobbin, not of Lua.
*/

#include "keyed.h"

uint64_t bobbin_lua_key[2];
