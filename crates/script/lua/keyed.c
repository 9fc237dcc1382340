/*
** See keyed.h.
** Part of Bobbin, not of Lua.
*/

#include "keyed.h"

#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "ltable.h"

uint64_t bobbin_lua_key[2];

Chains bobbin_lua_chains (lua_State *L) {
  Chains longest = {0, 0};
  global_State *g = G(L);
  GCObject *object;
  int i;
  for (i = 0; i < g->strt.size; i++) {
    size_t length = 0;
    for (object = g->strt.hash[i]; object != NULL; object = object->gch.next) length++;
    if (length > longest.strings) longest.strings = length;
  }
  for (object = g->rootgc; object != NULL; object = object->gch.next) {
    if (object->gch.tt != LUA_TTABLE) continue;
    for (i = 0; i < sizenode(gco2h(object)); i++) {
      size_t length = 0;
      Node *node;
      for (node = gnode(gco2h(object), i); node != NULL; node = gnext(node)) length++;
      if (length > longest.entries) longest.entries = length;
    }
  }
  return longest;
}
