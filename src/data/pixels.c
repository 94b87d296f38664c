/* data/pixels.c: bytes to float32 as torchvision's ToTensor() and Normalize() do it, bit for bit: x / 255, then - mean, then /
 * std, each rounded to float32. */
#include "data/pixels.h"

#include <string.h>

static inline float normalise(uint8_t value, float mean, float std)
{
    float x = (float)value / 255.0f;
    x = x - mean;
    return x / std;
}

#if defined(__x86_64__) && defined(__GNUC__)
#ifdef __clang__
#define EIGHT_LANES __attribute__((target("avx2")))
#else
#define EIGHT_LANES __attribute__((target("avx2"), optimize("O3")))
#endif
/* AVX2 has no fused multiply-add, so nothing is rounded differently. */
EIGHT_LANES static void compute(const uint8_t *restrict from, float *restrict to, size_t n, float mean, float std)
{
    for (size_t i = 0; i < n; i++) {
        float x = (float)from[i] / 255.0f;
        x = x - mean;
        to[i] = x / std;
    }
}

static bool has_eight_lanes(void) { return __builtin_cpu_supports("avx2") != 0; }
#else
static void compute(const uint8_t *from, float *to, size_t n, float mean, float std)
{
    for (size_t i = 0; i < n; i++) to[i] = normalise(from[i], mean, std);
}

static bool has_eight_lanes(void) { return false; }
#endif

/* Eight pixels per load; the background of most images is runs of zeros. */
static void look_up(const uint8_t *restrict from, float *restrict to, size_t n, const float *restrict table)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight;
        memcpy(&eight, from + i, sizeof eight);
        if (eight == 0) {
            for (size_t k = 0; k < 8; k++) to[i + k] = table[0];
        } else {
            for (size_t k = 0; k < 8; k++) to[i + k] = table[from[i + k]];
        }
    }
    for (; i < n; i++) to[i] = table[from[i]];
}

void th__pixels_init(th__pixels *how, double mean, double std)
{
    how->mean = (float)mean;
    how->std = (float)std;
    how->compute = has_eight_lanes();
    for (int value = 0; value < 256; value++) how->table[value] = normalise((uint8_t)value, how->mean, how->std);
}

void th__pixels_convert(const th__pixels *how, const uint8_t *from, float *to, size_t n)
{
    if (how->compute)
        compute(from, to, n, how->mean, how->std);
    else
        look_up(from, to, n, how->table);
}
