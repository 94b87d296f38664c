/* checkpoint/format/dtype.c: the table of dtypes. */
#include "checkpoint/format/dtype.h"

#include <string.h>

static const th__dtype_info table[] = {
    {TH_UINT8, 1, 1, "uint8", "ByteStorage", "U8"},
    {TH_INT8, 1, 1, "int8", "CharStorage", "I8"},
    {TH_INT16, 2, 2, "int16", "ShortStorage", "I16"},
    {TH_INT32, 4, 4, "int32", "IntStorage", "I32"},
    {TH_INT64, 8, 8, "int64", "LongStorage", "I64"},
    {TH_FLOAT16, 2, 2, "float16", "HalfStorage", "F16"},
    {TH_FLOAT32, 4, 4, "float32", "FloatStorage", "F32"},
    {TH_FLOAT64, 8, 8, "float64", "DoubleStorage", "F64"},
    {TH_COMPLEX32, 4, 2, "complex32", NULL, NULL},
    {TH_COMPLEX64, 8, 4, "complex64", "ComplexFloatStorage", "C64"},
    {TH_COMPLEX128, 16, 8, "complex128", "ComplexDoubleStorage", NULL},
    {TH_BOOL, 1, 1, "bool", "BoolStorage", "BOOL"},
    {TH_BFLOAT16, 2, 2, "bfloat16", "BFloat16Storage", "BF16"},
    {TH_FLOAT8_E5M2, 1, 1, "float8_e5m2", NULL, "F8_E5M2"},
    {TH_FLOAT8_E4M3FN, 1, 1, "float8_e4m3fn", NULL, "F8_E4M3"},
    {TH_FLOAT8_E5M2FNUZ, 1, 1, "float8_e5m2fnuz", NULL, "F8_E5M2FNUZ"},
    {TH_FLOAT8_E4M3FNUZ, 1, 1, "float8_e4m3fnuz", NULL, "F8_E4M3FNUZ"},
    {TH_UINT16, 2, 2, "uint16", NULL, "U16"},
    {TH_UINT32, 4, 4, "uint32", NULL, "U32"},
    {TH_UINT64, 8, 8, "uint64", NULL, "U64"},
};
enum { COUNT = sizeof table / sizeof *table };

static bool same(const char *name, const char *text, size_t length)
{
    return name != NULL && strlen(name) == length && memcmp(name, text, length) == 0;
}

const th__dtype_info *th__dtype_info_of(th_dtype dtype)
{
    for (size_t i = 0; i < COUNT; i++)
        if (table[i].dtype == dtype) return &table[i];
    return NULL;
}

const th__dtype_info *th__dtype_by_name(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT; i++)
        if (same(table[i].name, name, length)) return &table[i];
    return NULL;
}

const th__dtype_info *th__dtype_by_storage(const char *name, size_t length)
{
    for (size_t i = 0; i < COUNT; i++)
        if (same(table[i].storage, name, length)) return &table[i];
    return NULL;
}

const th__dtype_info *th__dtype_by_safetensors(const char *name)
{
    for (size_t i = 0; i < COUNT; i++)
        if (same(table[i].safetensors, name, strlen(name))) return &table[i];
    return NULL;
}
