/*
** See peek.h.
** Part of Bobbin, not of Lua.
*/

#include "peek.h"

#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "ltable.h"

int bobbin_lua_has_fields (lua_State *L, int at) {
  const Table *t = lua_topointer(L, at);
  return sizenode(t) > 1 || !ttisnil(gval(gnode(t, 0)));
}

int bobbin_lua_list_len (lua_State *L, int at, int most) {
  const Table *t = lua_topointer(L, at);
  int len = 0, i;
  if (bobbin_lua_has_fields(L, at) || t->sizearray > most) return -1;
  while (len < t->sizearray && !ttisnil(&t->array[len])) len++;
  for (i = len; i < t->sizearray; i++) {
    if (!ttisnil(&t->array[i])) return -1;
  }
  return len;
}

const char *bobbin_lua_string (lua_State *L, int at, size_t *len) {
  const TValue *value = at > 0 ? L->base + at - 1 : L->top + at;
  if (!ttisstring(value)) return NULL;
  *len = tsvalue(value)->len;
  return svalue(value);
}

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
