/*
** Hashes of strings and numbers under a secret key of the process.
** Part of Bobbin, not of Lua.
*/

#ifndef keyed_h
#define keyed_h

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "lua.h"

/* Set before the first state is made, and never again. */
extern uint64_t bobbin_lua_key[2];

/* SipHash's state. */
typedef struct Sip {
  uint64_t a, b, c, d;
} Sip;

#define sip_rotate(word, bits) (((word) << (bits)) | ((word) >> (64 - (bits))))

static inline Sip sip_round (Sip s) {
  s.a += s.b; s.b = sip_rotate(s.b, 13) ^ s.a; s.a = sip_rotate(s.a, 32);
  s.c += s.d; s.d = sip_rotate(s.d, 16) ^ s.c;
  s.a += s.d; s.d = sip_rotate(s.d, 21) ^ s.a;
  s.c += s.b; s.b = sip_rotate(s.b, 17) ^ s.c; s.c = sip_rotate(s.c, 32);
  return s;
}

static inline Sip sip_begin (void) {
  Sip s;
  s.a = bobbin_lua_key[0] ^ 0x736f6d6570736575u;
  s.b = bobbin_lua_key[1] ^ 0x646f72616e646f6du;
  s.c = bobbin_lua_key[0] ^ 0x6c7967656e657261u;
  s.d = bobbin_lua_key[1] ^ 0x7465646279746573u;
  return s;
}

/* Takes eight bytes in. */
static inline Sip sip_take (Sip s, uint64_t word) {
  s.d ^= word;
  s = sip_round(s);
  s.a ^= word;
  return s;
}

static inline unsigned int sip_end (Sip s) {
  s.c ^= 0xff;
  s = sip_round(sip_round(sip_round(s)));
  return (unsigned int)(s.a ^ s.b ^ s.c ^ s.d);
}

/* The hash of a string: SipHash-1-3 of all its bytes, of which 32 bits are kept. */
static inline unsigned int keyed_string (const char *bytes, size_t len) {
  const char *end = bytes + (len & ~(size_t)7);
  size_t rest = len & 7;
  uint64_t word, last = (uint64_t)len << 56;
  Sip s = sip_begin();
  for (; bytes != end; bytes += 8) {
    memcpy(&word, bytes, 8);
    s = sip_take(s, word);
  }
  /* What is left, without a loop. The places of bytes overlap where there are fewer. */
  if (rest >= 4) {
    uint32_t low, high;
    memcpy(&low, bytes, 4);
    memcpy(&high, bytes + rest - 4, 4);
    last |= low | (uint64_t)high << 8 * (rest - 4);
  }
  else if (rest > 0) {
    const unsigned char *few = (const unsigned char *)bytes;
    last |= few[0] | (uint64_t)few[rest >> 1] << 8 * (rest >> 1) |
            (uint64_t)few[rest - 1] << 8 * (rest - 1);
  }
  return sip_end(sip_take(s, last));
}

/* The hash of a number. Equal numbers have the same bits but for zero, which has two forms. */
static inline unsigned int keyed_number (lua_Number number) {
  uint64_t word;
  number += 0;
  memcpy(&word, &number, 8);
  return sip_end(sip_take(sip_begin(), word));
}

#endif
