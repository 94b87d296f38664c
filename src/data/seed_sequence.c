/* data/seed_sequence.c: Lightning's seeds for workers. */
#include "data/internal.h"

#define MULTIPLIER_1 0xFF51AFD7ED558CCDu
#define MULTIPLIER_2 0xC4CEB9FE1A85EC53u
#define LCG_MULTIPLIER 6364136223846793005u

void th__seed_sequence(uint64_t base, uint64_t worker, uint64_t rank, uint64_t *seeds, size_t count)
{
    /* base << 32 does not fit 64 bits. Of its 96 bits the product needs the low 64, and the first xor-shift moves bits 64..95
     * down, so it must see them; `low` and `high` are the halves of that number. */
    uint64_t low = base << 32 | worker << 16 | rank, high = base >> 32;
    uint64_t x = low ^ (low >> 33 | high << 31);
    x *= MULTIPLIER_1;
    x ^= x >> 33;
    x *= MULTIPLIER_2;
    x ^= x >> 33;
    for (size_t i = 0; i < count; i++) {
        x = x * LCG_MULTIPLIER + 1;
        seeds[i] = x;
    }
}
