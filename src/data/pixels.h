/* data/pixels.h: bytes to float32 as torchvision's ToTensor() and Normalize() do it, bit for bit. */
#ifndef FABRIC_DATA_PIXELS_H
#define FABRIC_DATA_PIXELS_H

#include <cfabric/base.h>

typedef struct th__pixels {
    float mean, std;
    float table[256]; /* the result for every byte */
    bool compute;     /* this processor computes faster than it looks up */
} th__pixels;

/* mean 0 and std 1 leave ToTensor's 0..1 as it is. */
void th__pixels_init(th__pixels *how, double mean, double std);
void th__pixels_convert(const th__pixels *how, const uint8_t *from, float *to, size_t n);

#endif
