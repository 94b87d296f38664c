/* checkpoint/format/text.c: the UTF-8 check. */
#include "checkpoint/format/text.h"

bool th__is_utf8(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    for (size_t i = 0; i < n;) {
        size_t more = p[i] < 0x80                   ? 0
                      : p[i] >= 0xc2 && p[i] < 0xe0 ? 1
                      : p[i] >= 0xe0 && p[i] < 0xf0 ? 2
                      : p[i] >= 0xf0 && p[i] < 0xf5 ? 3
                                                    : 9;
        if (more == 9 || n - i - 1 < more) return false;
        for (size_t k = 1; k <= more; k++)
            if ((p[i + k] & 0xc0) != 0x80) return false;
        if (p[i] == 0xe0 && p[i + 1] < 0xa0) return false;
        if (p[i] == 0xed && p[i + 1] >= 0xa0) return false;
        if (p[i] == 0xf0 && p[i + 1] < 0x90) return false;
        if (p[i] == 0xf4 && p[i + 1] >= 0x90) return false;
        i += more + 1;
    }
    return true;
}
