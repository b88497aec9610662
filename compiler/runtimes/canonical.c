// Writes the canonical form of a TVM object: objects with equal forms are structurally equal, and
// the names of their variables do not matter. TVM's own structural hash has 64 bits, so another
// object with the same hash can be found; and TVM's JSON writer crashes on types (0.27).
//
// A value is a tag and its content. An object is the name of its type, and its fields in the order
// in which TVM's reflection has them, without those that structural equality ignores; an object
// that was written before is its number. A value of an unknown kind makes the whole form fail.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

typedef struct {
  const TVMFFITypeInfo *(*type_info)(int32_t index);
  int (*release)(void *object);
  TVMFFIByteArray (*big_integer)(const TVMFFIAny *value);
  int (*get_global)(const TVMFFIByteArray *name, void **function);
  int (*call)(void *function, TVMFFIAny *arguments, int32_t count, TVMFFIAny *result);
} Interface;

typedef struct {
  const void *object;
  uint64_t number;
} Seen;

typedef struct {
  const Interface *tvm;
  void *iterator;
  uint8_t *bytes;
  size_t size, room;
  Seen *seen;
  size_t seen_count, seen_room;
  int failed;
} Writer;

static void put(Writer *to, const void *bytes, size_t size) {
  if (to->failed) return;
  if (to->size + size > to->room) {
    size_t room = 2 * (to->size + size) + 4096;
    uint8_t *grown = realloc(to->bytes, room);
    if (grown == NULL) {
      to->failed = 1;
      return;
    }
    to->bytes = grown;
    to->room = room;
  }
  memcpy(to->bytes + to->size, bytes, size);
  to->size += size;
}

static void put_number(Writer *to, char tag, uint64_t number) {
  put(to, &tag, 1);
  put(to, &number, sizeof number);
}

static void put_text(Writer *to, char tag, const void *bytes, size_t size) {
  put_number(to, tag, size);
  put(to, bytes, size);
}

static Seen *place(Seen *table, size_t room, const void *object) {
  size_t at = ((uintptr_t)object >> 4) * UINT64_C(0x9E3779B97F4A7C15) & (room - 1);
  while (table[at].object != NULL && table[at].object != object) at = (at + 1) & (room - 1);
  return &table[at];
}

// Whether the object was met before, and then has a reference in place of its content.
static int met(Writer *to, const void *object) {
  if (2 * to->seen_count >= to->seen_room) {
    size_t room = to->seen_room ? 2 * to->seen_room : 1 << 12;
    Seen *grown = calloc(room, sizeof *grown);
    if (grown == NULL) {
      to->failed = 1;
      return 1;
    }
    for (size_t i = 0; i < to->seen_room; i++) {
      if (to->seen[i].object != NULL) *place(grown, room, to->seen[i].object) = to->seen[i];
    }
    free(to->seen);
    to->seen = grown;
    to->seen_room = room;
  }
  Seen *found = place(to->seen, to->seen_room, object);
  if (found->object != NULL) {
    put_number(to, 'R', found->number);
    return 1;
  }
  found->object = object;
  found->number = to->seen_count++;
  return 0;
}

static void put_value(Writer *to, const TVMFFIAny *value);

// The value of a call or of a field, which is ours to release.
static void put_owned(Writer *to, const TVMFFIAny *value) {
  put_value(to, value);
  if (value->type_index >= kTVMFFIStaticObjectBegin) to->tvm->release(value->v_ptr);
}

static void put_fields(Writer *to, const TVMFFITypeInfo *type, char *object) {
  for (int32_t i = 0; i < type->num_fields; i++) {
    const TVMFFIFieldInfo *field = &type->fields[i];
    if (field->flags & kTVMFFIFieldFlagBitMaskSEqHashIgnore) continue;
    TVMFFIAny found = {0};
    if (to->failed || field->getter(object + field->offset, &found) != 0) {
      to->failed = 1;
      return;
    }
    put_owned(to, &found);
  }
}

static void put_object(Writer *to, char *object, int32_t index) {
  const TVMFFITypeInfo *type = to->tvm->type_info(index);
  // What structural equality does not know has no fields to go by.
  if (type == NULL || type->metadata == NULL ||
      type->metadata->structural_eq_hash_kind == kTVMFFISEqHashKindUnsupported) {
    to->failed = 1;
    return;
  }
  put_text(to, 'O', type->type_key.data, type->type_key.size);
  for (int32_t i = 1; i < type->type_depth; i++) put_fields(to, type->type_ancestors[i], object);
  put_fields(to, type, object);
}

// TVM's iterator gives the key for 0, the value for 1, and goes on for 2.
static int ask(Writer *to, void *iterator, int64_t question, TVMFFIAny *answer) {
  TVMFFIAny argument = {.type_index = kTVMFFIInt, .v_int64 = question};
  *answer = (TVMFFIAny){0};
  if (to->failed || to->tvm->call(iterator, &argument, 1, answer) != 0) to->failed = 1;
  return !to->failed;
}

static void put_map(Writer *to, TVMFFIObject *map, int64_t size) {
  put_number(to, 'M', (uint64_t)size);
  if (size == 0) return;
  TVMFFIAny given = {.type_index = kTVMFFIMap, .v_obj = map}, iterator = {0}, answer;
  if (to->tvm->call(to->iterator, &given, 1, &iterator) != 0) {
    to->failed = 1;
    return;
  }
  for (int64_t i = 0; i < size && !to->failed; i++) {
    for (int64_t part = 0; part < 2; part++) {
      if (ask(to, iterator.v_ptr, part, &answer)) put_owned(to, &answer);
    }
    ask(to, iterator.v_ptr, 2, &answer);
  }
  to->tvm->release(iterator.v_ptr);
}

static void put_map_of(Writer *to, TVMFFIObject *map) {
  static const TVMFFIByteArray name = {"ffi.MapSize", 11};
  TVMFFIAny given = {.type_index = kTVMFFIMap, .v_obj = map}, size = {0};
  void *function = NULL;
  if (to->tvm->get_global(&name, &function) != 0 || function == NULL ||
      to->tvm->call(function, &given, 1, &size) != 0) {
    to->failed = 1;
  } else {
    put_map(to, map, size.v_int64);
  }
  if (function != NULL) to->tvm->release(function);
}

static void put_value(Writer *to, const TVMFFIAny *value) {
  int32_t index = value->type_index;
  if (to->failed) return;
  switch (index) {
    case kTVMFFINone: put(to, "N", 1); return;
    case kTVMFFIInt: put_number(to, 'I', value->v_uint64); return;
    case kTVMFFIBool: put_number(to, 'B', value->v_int64 != 0); return;
    case kTVMFFIFloat: put_number(to, 'F', value->v_uint64); return;
    case kTVMFFIDataType: {
      DLDataType type = value->v_dtype;
      put_number(to, 'T', type.code | (uint64_t)type.bits << 8 | (uint64_t)type.lanes << 16);
      return;
    }
    case kTVMFFISmallStr: put_text(to, 'S', value->v_bytes, value->small_str_len); return;
    case kTVMFFIStr: {
      const TVMFFIByteArray *text = (const TVMFFIByteArray *)(value->v_obj + 1);
      put_text(to, 'S', text->data, text->size);
      return;
    }
    case kTVMFFIBigInt: {
      TVMFFIByteArray words = to->tvm->big_integer(value);
      put_text(to, 'W', words.data, words.size);
      return;
    }
  }
  if (index != kTVMFFIArray && index != kTVMFFIMap && index < kTVMFFIDynObjectBegin) {
    to->failed = 1;
    return;
  }
  if (met(to, value->v_obj)) return;
  if (index == kTVMFFIArray) {
    const TVMFFISeqCell *items = (const TVMFFISeqCell *)(value->v_obj + 1);
    put_number(to, 'A', (uint64_t)items->size);
    for (int64_t i = 0; i < items->size; i++) put_value(to, (const TVMFFIAny *)items->data + i);
  } else if (index == kTVMFFIMap) {
    put_map_of(to, value->v_obj);
  } else {
    put_object(to, (char *)value->v_obj, index);
  }
}

// The form's bytes, to be freed by the caller; NULL where the object has none, or memory ran out.
uint8_t *relaxd_canonical(const Interface *tvm, TVMFFIObject *object, size_t *size) {
  static const TVMFFIByteArray name = {"ffi.MapForwardIterFunctor", 25};
  Writer to = {.tvm = tvm};
  TVMFFIAny root = {.type_index = object->type_index, .v_obj = object};
  if (tvm->get_global(&name, &to.iterator) != 0 || to.iterator == NULL) return NULL;
  put_value(&to, &root);
  tvm->release(to.iterator);
  free(to.seen);
  if (to.failed) {
    free(to.bytes);
    return NULL;
  }
  *size = to.size;
  return to.bytes;
}

void relaxd_canonical_free(uint8_t *bytes) { free(bytes); }
