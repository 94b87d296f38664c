/* base/json.h: JSON through cJSON, with errors that say where, and numbers that do not depend on the locale. */
#ifndef FABRIC_BASE_JSON_H
#define FABRIC_BASE_JSON_H

#include <cfabric/base.h>
#include <cjson/cJSON.h>

/* One JSON value and nothing after it. NULL with TH_ERR_DATA: "<what>: line 3, column 7: not valid JSON". cJSON_Delete it. */
cJSON *th__json_parse(const char *text, size_t length, const char *what);
/* NULL with TH_ERR_NOT_FOUND, TH_ERR_IO or TH_ERR_DATA. */
cJSON *th__json_parse_file(const char *path);
/* New text, free() it; NULL with TH_ERR_MEMORY. Numbers that are whole are written without a point. */
char *th__json_print(const cJSON *json, bool indented);

/* Members of an object: false and unchanged *out when missing; TH_ERR_DATA raised (and false) when of another kind. */
bool th__json_int(const cJSON *object, const char *key, int64_t *out, const char *what);
bool th__json_double(const cJSON *object, const char *key, double *out, const char *what);
bool th__json_bool(const cJSON *object, const char *key, bool *out, const char *what);
bool th__json_string(const cJSON *object, const char *key, const char **out, const char *what); /* [borrowed] */

#endif
