/* checkpoint/format/crc32.c: zip's CRC-32. */
#include "checkpoint/format/bytes.h"

#include <zlib.h>

uint32_t th__crc32(uint32_t crc, const void *data, size_t size) { return (uint32_t)crc32_z(crc, data, size); }
