/*
** What Lua's interface does not tell of a state.
** Part of Bobbin, not of Lua.
*/

#ifndef peek_h
#define peek_h

#include <stddef.h>

#include "lua.h"

/* Whether a table may have keys that are no elements of its array. */
int bobbin_lua_has_fields (lua_State *L, int at);

/*
** The number of elements of a table whose keys are 1 to that number; -1 if it has other keys, lies
** otherwise, or has room for more than `most`.
*/
int bobbin_lua_list_len (lua_State *L, int at, int most);

/* The bytes of a value of the stack that is a string; NULL for any other, also for a number. */
const char *bobbin_lua_string (lua_State *L, int at, size_t *len);

/*
** For tests: how many strings and how many entries of a table lie in the longest chain that a
** lookup may have to go along, in the table of strings and in all of the state's tables.
*/
typedef struct Chains {
  size_t strings, entries;
} Chains;

Chains bobbin_lua_chains (lua_State *L);

#endif
