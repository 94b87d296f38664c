/* base/json.c: JSON through cJSON. */
#include "base/json.h"

#include "base/error.h"
#include "base/fs.h"
#include "base/strings.h"
#include <math.h>
#include <stdlib.h>

static void fail_at(const char *text, const char *end, const char *at, const char *what)
{
    int line = 1, column = 1;
    for (const char *p = text; p < at && p < end; p++) {
        column++;
        if (*p == '\n') line++, column = 1;
    }
    if (at >= end)
        th__fail(TH_ERR_DATA, "json", "%s: line %d, column %d: the JSON text ends too early", what, line, column);
    else
        th__fail(TH_ERR_DATA, "json", "%s: line %d, column %d: not valid JSON", what, line, column);
}

cJSON *th__json_parse(const char *text, size_t length, const char *what)
{
    TH__CHECK_PENDING_NULL();
    const char *end = text + length, *stopped = text;
    void *locale = th__locale_enter();
    cJSON *json = cJSON_ParseWithLengthOpts(text, length, &stopped, 0);
    th__locale_leave(locale);
    if (json != NULL) {
        while (stopped < end && (th__is_space(*stopped) || *stopped == '\0')) stopped++;
        if (stopped == end) return json;
        cJSON_Delete(json);
    }
    fail_at(text, end, stopped, what);
    return NULL;
}

cJSON *th__json_parse_file(const char *path)
{
    TH__CHECK_PENDING_NULL();
    size_t length;
    char *text = th__read_file(path, &length);
    if (text == NULL) return NULL;
    cJSON *json = th__json_parse(text, length, path);
    free(text);
    return json;
}

char *th__json_print(const cJSON *json, bool indented)
{
    void *locale = th__locale_enter();
    char *text = indented ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
    th__locale_leave(locale);
    if (text == NULL) th__fail(TH_ERR_MEMORY, "json", "out of memory while writing JSON");
    return text;
}

static const cJSON *member(const cJSON *object, const char *key, cJSON_bool (*is)(const cJSON *), const char *kind,
                           const char *what)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL || is(item)) return item;
    th__fail(TH_ERR_DATA, "json", "%s: '%s' is not %s", what, key, kind);
    return NULL;
}

bool th__json_int(const cJSON *object, const char *key, int64_t *out, const char *what)
{
    const cJSON *item = member(object, key, cJSON_IsNumber, "an integer", what);
    if (item == NULL) return false;
    if (item->valuedouble != floor(item->valuedouble) || fabs(item->valuedouble) > 9007199254740992.0) {
        th__fail(TH_ERR_DATA, "json", "%s: '%s' is not an integer", what, key);
        return false;
    }
    *out = (int64_t)item->valuedouble;
    return true;
}

bool th__json_double(const cJSON *object, const char *key, double *out, const char *what)
{
    const cJSON *item = member(object, key, cJSON_IsNumber, "a number", what);
    if (item != NULL) *out = item->valuedouble;
    return item != NULL;
}

bool th__json_bool(const cJSON *object, const char *key, bool *out, const char *what)
{
    const cJSON *item = member(object, key, cJSON_IsBool, "true or false", what);
    if (item != NULL) *out = cJSON_IsTrue(item);
    return item != NULL;
}

bool th__json_string(const cJSON *object, const char *key, const char **out, const char *what)
{
    const cJSON *item = member(object, key, cJSON_IsString, "a text", what);
    if (item != NULL) *out = item->valuestring;
    return item != NULL;
}
