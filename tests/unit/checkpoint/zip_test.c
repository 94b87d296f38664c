/* zip_test.c: the archives themselves: zip64 by size, by distance and by number of records; crafted directories. */
#include "checkpoint_python.h"

#include "checkpoint/format/pickle_write.h"
#include "checkpoint/format/torch_file.h"
#include "checkpoint/format/zip.h"

static th_status put_tensor(th__pickler *pickle, const char *name, const char *key, th_dtype dtype, int64_t numel)
{
    const int64_t one = 1;
    th__pickle_text(pickle, name);
    th__pickle_tensor_spec spec = {.dtype = th__dtype_info_of(dtype),
                                   .key = key,
                                   .device = "cpu",
                                   .storage_numel = (uint64_t)numel,
                                   .sizes = &numel,
                                   .strides = &one,
                                   .dim = 1};
    return th__pickle_tensor(pickle, &spec);
}

/* A hole of zeros in a sparse file: no disk space is needed. */
static void put_hole(th__zip_writer *zip, th__sink *sink, uint64_t size)
{
    static const unsigned char zeros[1 << 20];
    uint64_t at;
    assert_int_equal(th__zip_add_begin(zip, "archive/data/0", size), TH_OK);
    assert_int_equal(th__sink_reserve(sink, size, &at), TH_OK);
    uint32_t *crc = &zip->records[zip->count - 1].crc;
    for (uint64_t left = size, n; left > 0; left -= n) {
        n = left < sizeof zeros ? left : sizeof zeros;
        *crc = th__crc32(*crc, zeros, (size_t)n);
    }
    assert_int_equal(th__zip_add_end(zip), TH_OK);
}

static void test_more_than_4_gib(void **state)
{
    const uint64_t size = (UINT64_C(1) << 32) + 100;
    const float small[5] = {0, 1, 2, 3, 4};
    char *path = scratch(*state, "huge.pt");
    th__atomic_file out;
    th__sink sink;
    th__zip_writer zip;
    th__pickler pickle;
    th__pickle_begin(&pickle);
    th__pickle_open(&pickle, '{');
    put_tensor(&pickle, "big", "0", TH_UINT8, (int64_t)size);
    put_tensor(&pickle, "small", "1", TH_FLOAT32, 5);
    th__pickle_close(&pickle, '{');
    th__pickle_end(&pickle);
    assert_int_equal(th__atomic_open(&out, path), TH_OK);
    th__sink_init(&sink, &out);
    th__zip_begin(&zip, &sink);
    th__zip_add(&zip, "archive/data.pkl", pickle.out.data, pickle.out.size);
    put_hole(&zip, &sink, size);
    th__zip_add(&zip, "archive/data/1", small, sizeof small); /* beyond 4 GiB */
    th__zip_add(&zip, "archive/version", "3\n", 2);
    assert_int_equal(th__zip_finish(&zip), TH_OK);
    assert_int_equal(th__atomic_commit(&out), TH_OK);
    th__zip_writer_free(&zip);
    th__sink_free(&sink);
    th__pickle_free(&pickle);

    th__source source;
    th__torch_file file;
    float back[5];
    assert_int_equal(th__source_open(&source, path), TH_OK);
    if (th__torch_file_open(&file, &source, 0, source.size) != TH_OK) fail_msg("%s", th_error_message());
    const th__zip_entry *entry = th__zip_find(&file.zip, "archive/data/1");
    assert_non_null(entry);
    assert_true(entry->data > size);
    assert_int_equal(entry->data % 64, 0);
    assert_int_equal(th__zip_read(&file.zip, entry, back), TH_OK);
    assert_memory_equal(back, small, sizeof small);
    assert_int_equal(th__torch_file_verify_rest(&file), TH_OK);
    th__torch_file_close(&file);
    th__source_close(&source);
    run_script("huge", *state);
}

static void test_more_than_65535_records(void **state)
{
    enum { RECORDS = 70000 };
    char *path = scratch(*state, "many.zip"), name[32];
    th__atomic_file out;
    th__sink sink;
    th__zip_writer zip;
    assert_int_equal(th__atomic_open(&out, path), TH_OK);
    th__sink_init(&sink, &out);
    th__zip_begin(&zip, &sink);
    for (int i = 0; i < RECORDS; i++) {
        snprintf(name, sizeof name, "archive/data/%d", i);
        th__zip_add(&zip, name, &i, sizeof i);
    }
    assert_int_equal(th__zip_finish(&zip), TH_OK);
    assert_int_equal(th__atomic_commit(&out), TH_OK);
    th__zip_writer_free(&zip);
    th__sink_free(&sink);
    th__source source;
    th__zip in;
    assert_int_equal(th__source_open(&source, path), TH_OK);
    if (th__zip_open(&in, &source, 0, source.size) != TH_OK) fail_msg("%s", th_error_message());
    assert_int_equal(in.count, RECORDS);
    for (int i = 0; i < RECORDS; i += 999) {
        int value;
        snprintf(name, sizeof name, "archive/data/%d", i);
        assert_int_equal(th__zip_read(&in, th__zip_find(&in, name), &value), TH_OK);
        assert_int_equal(value, i);
    }
    th__zip_close(&in);
    th__source_close(&source);
}

/* ---------------------------------------------------------------- crafted archives */

/* A writer without checksum and with whatever numbers the test wants. */
typedef struct craft {
    unsigned char bytes[4096];
    size_t size, directory;
    unsigned char central[2048];
    size_t n_central, count;
} craft;

static void craft_record(craft *c, const char *name, const char *data, uint32_t size, uint32_t header, int method)
{
    unsigned char *p = c->bytes + c->size, *q = c->central + c->n_central;
    uint16_t n = (uint16_t)strlen(name);
    uint32_t crc = th__crc32(0, data, size);
    memset(p, 0, 30);
    th__put32(p, 0x04034b50u);
    th__put16(p + 8, (uint16_t)method);
    th__put32(p + 14, crc);
    th__put32(p + 18, size);
    th__put32(p + 22, size);
    th__put16(p + 26, n);
    memcpy(p + 30, name, n);
    memcpy(p + 30 + n, data, size);
    memset(q, 0, 46);
    th__put32(q, 0x02014b50u);
    th__put16(q + 10, (uint16_t)method);
    th__put32(q + 16, crc);
    th__put32(q + 20, size);
    th__put32(q + 24, size);
    th__put16(q + 28, n);
    th__put32(q + 42, header == UINT32_MAX ? (uint32_t)c->size : header);
    memcpy(q + 46, name, n);
    c->size += 30u + n + size;
    c->n_central += 46u + n;
    c->count++;
}

static void craft_end(craft *c, uint16_t count)
{
    unsigned char *p = c->bytes + c->size;
    memcpy(p, c->central, c->n_central);
    p += c->n_central;
    memset(p, 0, 22);
    th__put32(p, 0x06054b50u);
    th__put16(p + 8, count);
    th__put16(p + 10, count);
    th__put32(p + 12, (uint32_t)c->n_central);
    th__put32(p + 16, (uint32_t)c->size);
    c->size += c->n_central + 22;
}

static th_status open_craft(const craft *c)
{
    th__source source;
    th__zip zip;
    assert_int_equal(th__source_memory(&source, c->bytes, c->size, "crafted"), TH_OK);
    th_status status = th__zip_open(&zip, &source, 0, c->size);
    if (status == TH_OK) th__zip_close(&zip);
    th__source_close(&source);
    return status;
}

static void expect(const craft *c, const char *says)
{
    th_status status = open_craft(c);
    if (says == NULL) {
        if (status != TH_OK) fail_msg("%s", th_error_message());
        return;
    }
    assert_int_equal(status, TH_ERR_DATA);
    if (strstr(th_error_message(), says) == NULL) fail_msg("%s", th_error_message());
    th_error_clear();
}

static void test_crafted_directories(void **state)
{
    (void)state;
    craft good = {0}, twice = {0}, overlap = {0}, outside = {0}, count = {0}, name = {0};
    craft_record(&good, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    craft_record(&good, "a/data/0", "defg", 4, UINT32_MAX, 0);
    craft_end(&good, 2);
    expect(&good, NULL);
    craft_record(&twice, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    craft_record(&twice, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    craft_end(&twice, 2);
    expect(&twice, "two records are called");
    craft_record(&overlap, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    craft_record(&overlap, "a/data.pkl", "abc", 3, 0, 0); /* both at one place: the usual zip bomb */
    craft_end(&overlap, 2);
    expect(&overlap, "overlap");
    craft_record(&outside, "a/data.pkl", "abc", 3, 0x7fffffff, 0);
    craft_end(&outside, 1);
    expect(&outside, "outside");
    craft_record(&count, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    craft_end(&count, 60000);
    expect(&count, "does not fit");
    craft_record(&name, "a/data.pkl", "abc", 3, UINT32_MAX, 0);
    memcpy(name.central + 46, "b/data.pkl", 10);
    craft_end(&name, 1);
    expect(&name, "another name");
}

static void test_paths_in_names_mean_nothing(void **state)
{
    (void)state;
    craft c = {0};
    craft_record(&c, "../../etc/passwd", "abc", 3, UINT32_MAX, 0); /* records are never extracted to files */
    craft_end(&c, 1);
    expect(&c, NULL);
    th__source source;
    th__torch_file file;
    assert_int_equal(th__source_memory(&source, c.bytes, c.size, "crafted"), TH_OK);
    assert_int_equal(th__torch_file_open(&file, &source, 0, c.size), TH_ERR_DATA);
    assert_non_null(strstr(th_error_message(), "no data.pkl"));
    th__source_close(&source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {CASE(test_more_than_4_gib), CASE(test_more_than_65535_records),
                                       CASE(test_crafted_directories), CASE(test_paths_in_names_mean_nothing)};
    return cmocka_run_group_tests_name("zip", tests, NULL, NULL);
}
