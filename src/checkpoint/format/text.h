/* checkpoint/format/text.h: text that other programs must be able to read. */
#ifndef FABRIC_CHECKPOINT_TEXT_H
#define FABRIC_CHECKPOINT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Well-formed UTF-8: no overlong forms, no surrogates. */
bool th__is_utf8(const char *text, size_t size);

#endif
