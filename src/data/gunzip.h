/* data/gunzip.h: reading gzip data from memory, several members one after the other. */
#ifndef FABRIC_DATA_GUNZIP_H
#define FABRIC_DATA_GUNZIP_H

#include <cfabric/base.h>

typedef struct th__gunzip th__gunzip;

/* `name` and `data` must outlive it. NULL with an error pending. */
th__gunzip *th__gunzip_new(const char *name, const uint8_t *data, size_t size);
/* Unpacks up to `size` bytes; fewer only at the end. DataError for damaged or cut data and for foreign bytes after the end. */
th_status th__gunzip_read(th__gunzip *stream, void *out, size_t size, size_t *got);
void th__gunzip_free(th__gunzip *stream);

#endif
