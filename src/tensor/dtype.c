/* tensor/dtype.c: names and sizes of dtypes, device texts. */
#include "base/error.h"
#include <cfabric/tensor.h>

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { th_dtype dtype; const char *name, *alias; size_t size; char kind; } table[] = {
    {TH_UINT8, "uint8", NULL, 1, 'u'},         {TH_INT8, "int8", NULL, 1, 'i'},
    {TH_INT16, "int16", "short", 2, 'i'},      {TH_INT32, "int32", "int", 4, 'i'},
    {TH_INT64, "int64", "long", 8, 'i'},       {TH_FLOAT16, "float16", "half", 2, 'f'},
    {TH_FLOAT32, "float32", "float", 4, 'f'},  {TH_FLOAT64, "float64", "double", 8, 'f'},
    {TH_COMPLEX32, "complex32", NULL, 4, 'c'}, {TH_COMPLEX64, "complex64", "cfloat", 8, 'c'},
    {TH_COMPLEX128, "complex128", "cdouble", 16, 'c'}, {TH_BOOL, "bool", NULL, 1, 'b'},
    {TH_QINT8, "qint8", NULL, 1, 'q'},         {TH_QUINT8, "quint8", NULL, 1, 'q'},
    {TH_QINT32, "qint32", NULL, 4, 'q'},       {TH_BFLOAT16, "bfloat16", NULL, 2, 'f'},
    {TH_FLOAT8_E5M2, "float8_e5m2", NULL, 1, 'f'},         {TH_FLOAT8_E4M3FN, "float8_e4m3fn", NULL, 1, 'f'},
    {TH_FLOAT8_E5M2FNUZ, "float8_e5m2fnuz", NULL, 1, 'f'}, {TH_FLOAT8_E4M3FNUZ, "float8_e4m3fnuz", NULL, 1, 'f'},
    {TH_UINT16, "uint16", NULL, 2, 'u'},       {TH_UINT32, "uint32", NULL, 4, 'u'},
    {TH_UINT64, "uint64", NULL, 8, 'u'},
};
enum { N_DTYPES = sizeof table / sizeof *table };

static int find(th_dtype dtype)
{
    for (int i = 0; i < N_DTYPES; i++)
        if (table[i].dtype == dtype) return i;
    return -1;
}

const char *th_dtype_name(th_dtype dtype)
{
    int i = find(dtype);
    return i >= 0 ? table[i].name : dtype == TH_DTYPE_NONE ? "none" : "unknown";
}

size_t th_dtype_size(th_dtype dtype)
{
    int i = find(dtype);
    return i >= 0 ? table[i].size : 0;
}

bool th_dtype_is_floating_point(th_dtype dtype)
{
    int i = find(dtype);
    return i >= 0 && table[i].kind == 'f';
}

bool th_dtype_is_complex(th_dtype dtype)
{
    int i = find(dtype);
    return i >= 0 && table[i].kind == 'c';
}

th_dtype th_dtype_parse(const char *name)
{
    if (name == NULL) return TH_DTYPE_NONE;
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (int i = 0; i < N_DTYPES; i++)
        if (strcmp(name, table[i].name) == 0 || (table[i].alias != NULL && strcmp(name, table[i].alias) == 0))
            return table[i].dtype;
    return TH_DTYPE_NONE;
}

static const struct { th_device_type type; const char *name; bool indexed; } devices[] = {
    {TH_DEVICE_CPU, "cpu", false}, {TH_DEVICE_CUDA, "cuda", true}, {TH_DEVICE_MPS, "mps", true},
    {TH_DEVICE_XLA, "xla", true},  {TH_DEVICE_META, "meta", false},
};

th_device th_device_parse(const char *text)
{
    th_device none = {TH_DEVICE_NONE, 0};
    if (th__pending() != TH_OK) return none;
    for (size_t i = 0; text != NULL && i < sizeof devices / sizeof *devices; i++) {
        size_t length = strlen(devices[i].name);
        if (strncmp(text, devices[i].name, length) != 0) continue;
        if (text[length] == '\0') return (th_device){devices[i].type, -1};
        if (text[length] != ':' || text[length + 1] < '0' || text[length + 1] > '9') continue;
        char *end;
        long index = strtol(text + length + 1, &end, 10);
        if (*end == '\0' && index <= INT_MAX && (devices[i].indexed || index == 0))
            return (th_device){devices[i].type, devices[i].indexed ? (int)index : -1};
    }
    TH__FAIL(TH_ERR_VALUE, "device '%s' is not known, expected cpu, cuda, cuda:N, mps or meta", text != NULL ? text : "(null)");
    return none;
}

const char *th_device_format(th_device device, char *buffer, size_t size)
{
    const char *name = device.type == TH_DEVICE_NONE ? "none" : "other";
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (devices[i].type == device.type) name = devices[i].name;
    if (device.index >= 0 && device.type != TH_DEVICE_CPU && device.type != TH_DEVICE_NONE && device.type != TH_DEVICE_META)
        snprintf(buffer, size, "%s:%d", name, device.index);
    else snprintf(buffer, size, "%s", name);
    return buffer;
}
