/* environments/variables.c: reading and exporting environment variables, with errors that name variable and value. */
#include "environments/internal.h"

#include "base/strings.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *fake_hostname;

bool fabric__parse_int(const char *text, long min, long max, int *value)
{
    int64_t number;
    if (!th__parse_int(text, &number) || number < min || number > max) return false;
    *value = (int)number;
    return true;
}

static int number_from(const char *text, const char *variable, const char *environment)
{
    int value;
    if (fabric__parse_int(text, 0, INT_MAX, &value)) return value;
    TH__FAIL(TH_ERR_VALUE, "%s: %s='%s' is not a number; expected a whole number, 0 or more", environment, variable, text);
    return -1;
}

int fabric__environment_int(const char *variable, const char *environment, const char *hint)
{
    const char *text = getenv(variable);
    if (text != NULL) return number_from(text, variable, environment);
    TH__FAIL(TH_ERR_KEY, "%s: environment variable '%s' not found%s%s", environment, variable, hint != NULL ? "; " : "",
             hint != NULL ? hint : "");
    return -1;
}

int fabric__environment_int_or(const char *variable, const char *environment, int fallback)
{
    const char *text = getenv(variable);
    return text != NULL ? number_from(text, variable, environment) : fallback;
}

int fabric__environment_port(const char *variable)
{
    const char *text = getenv(variable);
    int port;
    if (text != NULL && fabric__parse_int(text, 1, 65535, &port)) return port;
    TH__FAIL(TH_ERR_VALUE, "%s='%s' is not a port; expected a number from 1 to 65535", variable, text != NULL ? text : "");
    return -1;
}

th_status fabric__environment_hostname(char *buffer, size_t size)
{
    if (fake_hostname != NULL) {
        snprintf(buffer, size, "%s", fake_hostname);
        return TH_OK;
    }
    if (gethostname(buffer, size) != 0) return TH__FAIL(TH_ERR_RUNTIME, "gethostname failed: %s", strerror(errno));
    buffer[size - 1] = '\0';
    return TH_OK;
}

void fabric__environment_fake_hostname(const char *name) { fake_hostname = name; }
