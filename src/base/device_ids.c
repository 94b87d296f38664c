/* base/device_ids.c: which GPUs a text means. Used by the accelerators and by `fabric run`, which has no libtorch. */
#include "base/device_ids.h"

#include "base/error.h"
#include "base/strings.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

typedef struct choice {
    int *out;
    size_t capacity, count;
} choice;

static void choose(choice *chosen, int id)
{
    if (chosen->count < chosen->capacity) chosen->out[chosen->count] = id;
    chosen->count++;
}

static th_status not_a_number(const char *class_name, const char *text)
{
    return th__fail(TH_ERR_TYPE, "devices",
                    "devices='%s' is not possible with %s; expected a number of GPUs, -1 for all of them, or a list of "
                    "GPU numbers such as '0,1'",
                    text, class_name);
}

/* "0,2", "2,": the numbers as they stand; empty parts are skipped. */
static th_status choose_list(choice *chosen, const char *text, const char *class_name)
{
    th__strings parts = {0};
    if (th__split(&parts, text, ',') != 0) return th__pending();
    for (size_t i = 0; i < parts.count && th__pending() == TH_OK; i++) {
        int64_t id;
        if (parts.items[i][0] == '\0') continue;
        if (!th__parse_int(parts.items[i], &id) || id < INT_MIN || id > INT_MAX)
            not_a_number(class_name, text);
        else
            choose(chosen, (int)id);
    }
    th__strings_free(&parts);
    return th__pending();
}

static th_status choose_count(choice *chosen, const char *text, int available, const char *class_name)
{
    int64_t n;
    if (!th__parse_int(text, &n) || n > INT16_MAX) return not_a_number(class_name, text);
    if (n == -1) n = available;
    for (int64_t i = 0; i < n; i++) choose(chosen, (int)i);
    return TH_OK;
}

static th_status check_unique(const int *ids, size_t n, const char *text)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++)
            if (ids[i] == ids[k])
                return th__fail(TH_ERR_VALUE, "devices", "devices='%s' names GPU %d twice; GPU numbers must be unique", text,
                                ids[i]);
    return TH_OK;
}

static th_status check_present(const int *ids, size_t n, const char *text, int available)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && ids[i] < available) continue;
        char there[256] = "";
        for (int id = 0; id < available && strlen(there) < sizeof there - 16; id++)
            snprintf(there + strlen(there), sizeof there - strlen(there), "%s%d", id > 0 ? ", " : "", id);
        return th__fail(TH_ERR_VALUE, "devices", "devices='%s' asks for GPU %d, but this machine only has: [%s]", text, ids[i],
                        there);
    }
    return TH_OK;
}

static bool means_none(const char *text)
{
    while (th__is_space(*text)) text++;
    size_t n = strlen(text);
    while (n > 0 && th__is_space(text[n - 1])) n--;
    return n == 0 || (n == 1 && text[0] == '0') || (n == 2 && memcmp(text, "[]", 2) == 0);
}

int th__parse_gpu_ids(const char *text, int available, const char *class_name, bool launched, int *out, size_t capacity)
{
    TH__CHECK_PENDING();
    if (text == NULL) return not_a_number(class_name, "(null)");
    if (means_none(text)) return 0;
    enum { MAX = 1024 };
    int ids[MAX];
    choice chosen = {ids, MAX, 0};
    if (strchr(text, ',') != NULL)
        TH__TRY(choose_list(&chosen, text, class_name));
    else
        TH__TRY(choose_count(&chosen, text, available, class_name));
    if (chosen.count == 0) return th__fail(TH_ERR_VALUE, "devices", "devices='%s' requests GPUs but none are available", text);
    if (chosen.count > MAX) return th__fail(TH_ERR_VALUE, "devices", "devices='%s' names more than %d GPUs", text, (int)MAX);
    bool sees_its_own = launched && available == 1 && chosen.count != 1;
    if (!sees_its_own) {
        TH__TRY(check_unique(ids, chosen.count, text));
        TH__TRY(check_present(ids, chosen.count, text, available));
    }
    for (size_t i = 0; i < chosen.count && i < capacity; i++) out[i] = ids[i];
    return (int)chosen.count;
}

th_status th__parse_cpu_count(const char *text, int *count)
{
    int64_t number;
    TH__CHECK_PENDING();
    if (!th__parse_int(text, &number) || number < 0 || number > INT16_MAX)
        return th__fail(TH_ERR_TYPE, "devices",
                        "devices='%s' is not understood for the CPU; expected a number of processes above zero", text);
    if (number == 0) return th__fail(TH_ERR_VALUE, "devices", "devices='%s' selects no device; the CPU needs at least one", text);
    *count = (int)number;
    return TH_OK;
}
