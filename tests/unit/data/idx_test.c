/* IDX files: every way they can be wrong gives one precise line; gzip is told by contents; other spellings are found. */
#include "helpers.h"

#include "data/idx_file.h"
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char folder[64];

static char *in_folder(const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const char *put(const char *name, const void *data, size_t size)
{
    const char *path = in_folder(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    fclose(file);
    return path;
}

/* n images of 2 x 3 whose pixels count up, and their labels. */
static size_t images_of(uint8_t *out, int n)
{
    const uint8_t header[] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)n, 0, 0, 0, 2, 0, 0, 0, 3};
    memcpy(out, header, sizeof header);
    for (int i = 0; i < n * 6; i++) out[sizeof header + (size_t)i] = (uint8_t)i;
    return sizeof header + (size_t)n * 6;
}

static size_t labels_of(uint8_t *out, int n)
{
    const uint8_t header[] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)n};
    memcpy(out, header, sizeof header);
    for (int i = 0; i < n; i++) out[sizeof header + (size_t)i] = (uint8_t)(100 + i);
    return sizeof header + (size_t)n;
}

/* One gzip member. */
static size_t gzipped(const uint8_t *data, size_t size, uint8_t *out, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return room - z.avail_out;
}

static uint8_t bytes[4096], packed[4096];

static void check_images(const char *images, const char *labels)
{
    TH_SCOPE();
    th_sample batch;
    th_dataset *set = th_dataset_idx(images, labels, .raw = true);
    assert_non_null(set);
    assert_int_equal(th_dataset_len(set), 4);
    assert_int_equal(th_dataset_get_batch(set, TH_INTS(3, 1), &batch), TH_OK);
    assert_int_equal(batch.size, labels != NULL ? 2 : 1);
    th_ints sizes = th_sizes(batch.data[0]);
    assert_int_equal(sizes.size, 4);
    assert_int_equal(sizes.data[0] * 1000 + sizes.data[1] * 100 + sizes.data[2] * 10 + sizes.data[3], 2123);
    const uint8_t *pixels = th_data_ptr(batch.data[0]);
    for (int i = 0; i < 6; i++) assert_int_equal(pixels[i], 18 + i);
    for (int i = 0; i < 6; i++) assert_int_equal(pixels[6 + i], 6 + i);
    if (labels != NULL) {
        const int64_t *values = th_data_ptr(batch.data[1]);
        assert_int_equal(th_dtype_of(batch.data[1]), TH_INT64);
        assert_int_equal(values[0] * 1000 + values[1], 103101);
    }
    th_dataset_free(set);
}

static void test_plain_and_gzip_by_contents(void **state)
{
    (void)state;
    size_t n = images_of(bytes, 4);
    put("plain", bytes, n);
    put("named.gz", bytes, n); /* a .gz name with plain contents */
    size_t m = gzipped(bytes, n, packed, sizeof packed);
    put("packed.gz", packed, m);
    put("packed-without", packed, m); /* gzip without .gz */
    size_t first = gzipped(bytes, 20, packed, sizeof packed);
    size_t second = gzipped(bytes + 20, n - 20, packed + first, sizeof packed - first);
    put("members", packed, first + second); /* two members */
    memset(packed + first + second, 0, 512);
    put("padded", packed, first + second + 512); /* zero padding after gzip is allowed */
    n = labels_of(bytes, 4);
    put("labels", bytes, n);
    check_images(in_folder("plain"), in_folder("labels"));
    check_images(in_folder("named.gz"), in_folder("labels"));
    check_images(in_folder("packed.gz"), NULL);
    check_images(in_folder("packed-without"), NULL);
    check_images(in_folder("members"), NULL);
    check_images(in_folder("padded"), NULL);
}

static void expect(const char *name, size_t size, const void *data, const char *part)
{
    put(name, data, size);
    assert_null(th_dataset_idx(in_folder(name)));
    if (strstr(th_error_message(), name) == NULL) fail_msg("no file name in '%s'", th_error_message());
    assert_error(TH_ERR_DATA, part);
}

static void test_wrong_magic(void **state)
{
    (void)state;
    expect("xml", 30, "<?xml version=\"1.0\"?><Error>..", "3c 3f 78 6d");
    expect("xml", 30, "<?xml version=\"1.0\"?><Error>..", "HTML/XML");
    expect("html", 20, "\n  <!DOCTYPE html>..", "HTML/XML");
    expect("zip", 10, "PK\x03\x04......", "zip archive");
    expect("lfs", 60, "version https://git-lfs.github.com/spec/v1\noid sha256:1234567", "git lfs pull");
    expect("txt", 64, "Not found. Not found. Not found. Not found. Not found. Not found", "looks like text");
    expect("type", 16, "\0\0\x0a\x03\0\0\0\x04\0\0\0\2\0\0\0\3", "type 0x0a is not known");
    expect("nodims", 8, "\0\0\x08\0\0\0\0\x04", "0 dimensions");
    expect("dims", 8, "\0\0\x08\x09\0\0\0\x04", "9 dimensions");
    expect("empty", 0, "", "0 bytes");
    expect("three", 3, "\0\0\x08", "3 bytes");
    size_t n = images_of(bytes, 4), m = gzipped(bytes, n, packed, sizeof packed);
    uint8_t twice[4096];
    expect("twice", gzipped(packed, m, twice, sizeof twice), twice, "gzip data inside gzip");
}

static void test_wrong_length(void **state)
{
    (void)state;
    size_t n = images_of(bytes, 4);
    expect("cut", n - 1, bytes, "truncated: it has 23 bytes of elements, its header promises 24");
    expect("cut-header", 12, bytes, "ends inside its header: 12 bytes, expected 16");
    bytes[n] = 7;
    expect("long", n + 1, bytes, "goes on after its end: its header promises 24 bytes of elements, there are at least 25");
    bytes[n + 1] = 7;
    expect("longer", n + 2, bytes, "there are 26");
    const uint8_t huge[] = {0, 0, 0x0e, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    expect("huge", sizeof huge, huge, "more elements than fit");
    size_t m = gzipped(huge, 16, packed, sizeof packed);
    expect("huge.gz", m, packed, "more elements than fit");
    const uint8_t bomb[] = {0, 0, 8, 3, 0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 3};
    expect("bomb.gz", gzipped(bomb, 16, packed, sizeof packed), packed, "bytes of gzip data can hold");
}

static void test_bad_gzip(void **state)
{
    (void)state;
    size_t n = images_of(bytes, 4), m = gzipped(bytes, n, packed, sizeof packed);
    expect("cut.gz", m / 2, packed, "is cut off after");
    expect("cut-crc.gz", m - 3, packed, "is cut off after");
    expect("two.gz", 2, packed, "is cut off after 2 bytes");
    packed[m] = 'x';
    expect("foreign.gz", m + 1, packed, "1 bytes after the end of its gzip data");
    packed[m - 6] ^= 1;
    expect("crc.gz", m, packed, "damaged");
    packed[m - 6] ^= 1;
    packed[11] ^= 0x10;
    put("flipped.gz", packed, m);
    assert_null(th_dataset_idx(in_folder("flipped.gz")));
    assert_int_equal(th_error(), TH_ERR_DATA);
    th_error_clear();
    packed[11] ^= 0x10;
    bytes[n] = 1;
    expect("long.gz", gzipped(bytes, n + 1, packed, sizeof packed), packed, "goes on after its end");
    expect("short.gz", gzipped(bytes, n - 1, packed, sizeof packed), packed, "truncated: it has 23 bytes");
}

static void test_images_and_labels(void **state)
{
    (void)state;
    put("images", bytes, images_of(bytes, 4));
    put("labels", bytes, labels_of(bytes, 4));
    put("labels3", bytes, labels_of(bytes, 3));
    put("ints", "\0\0\x0c\3\0\0\0\1\0\0\0\1\0\0\0\1\0\0\0\7", 20);
    assert_null(th_dataset_idx(in_folder("images"), in_folder("labels3")));
    assert_error(TH_ERR_DATA, "has 4 images, but");
    assert_null(th_dataset_idx(in_folder("labels"), in_folder("images")));
    assert_error(TH_ERR_DATA, "is this the file of labels?");
    assert_null(th_dataset_idx(in_folder("images"), in_folder("images")));
    assert_error(TH_ERR_DATA, "is this the file of images?");
    assert_null(th_dataset_idx(in_folder("ints")));
    assert_error(TH_ERR_DATA, "holds int32 values (type 0x0c), expected images of type uint8 (0x08)");
    assert_null(th_dataset_idx(in_folder("images"), .mean = TH_DOUBLES(1, 2), .std = TH_DOUBLES(1, 2)));
    assert_error(TH_ERR_VALUE, "2 means given, expected 1");
    assert_null(th_dataset_idx(in_folder("images"), .mean = TH_DOUBLES(1)));
    assert_error(TH_ERR_VALUE, "1 means and 0 stds");
    assert_null(th_dataset_idx(in_folder("images"), .mean = TH_DOUBLES(1), .std = TH_DOUBLES(0)));
    assert_error(TH_ERR_VALUE, "division by zero");
}

static void test_other_spellings(void **state)
{
    (void)state;
    mkdir(in_folder("root"), 0700);
    mkdir(in_folder("root/MNIST"), 0700);
    mkdir(in_folder("root/MNIST/raw"), 0700);
    mkdir(in_folder("flat"), 0700);
    put("flat/t10k-images.idx3-ubyte", bytes, images_of(bytes, 4));
    put("root/MNIST/raw/t10k-images-idx3-ubyte", bytes, images_of(bytes, 4));
    size_t m = gzipped(bytes, images_of(bytes, 4), packed, sizeof packed);
    put("flat/train-images-idx3-ubyte.gz", packed, m);
    check_images(in_folder("flat/t10k-images-idx3-ubyte"), NULL);    /* dot for hyphen */
    check_images(in_folder("root/t10k-images-idx3-ubyte"), NULL);    /* deeper */
    check_images(in_folder("root/t10k-images.idx3-ubyte.gz"), NULL); /* deeper, other spelling, not packed */
    check_images(in_folder("flat/train-images-idx3-ubyte"), NULL);   /* packed */
    assert_null(th_dataset_idx(in_folder("flat/none-idx3-ubyte")));
    const char *const tried[] = {"no such file", "raw/,MNIST/raw/,FashionMNIST/raw/",
                                 "{none-idx3-ubyte,none-idx3-ubyte.gz,none.idx3-ubyte,none.idx3-ubyte.gz}"};
    for (size_t i = 0; i < 3; i++) assert_non_null(strstr(th_error_message(), tried[i]));
    assert_error(TH_ERR_NOT_FOUND, "none-idx3-ubyte");
    assert_null(th_dataset_idx(in_folder("flat")));
    assert_error(TH_ERR_NOT_FOUND, "it is a folder");
    assert_null(th_dataset_idx(NULL));
    assert_error(TH_ERR_VALUE, "NULL");
}

static void test_every_type(void **state)
{
    (void)state;
    TH_SCOPE();
    put("i16", "\0\0\x0b\1\0\0\0\2\xff\xfe\1\2", 12);
    put("f64", "\0\0\x0e\1\0\0\0\1\x3f\xf8\0\0\0\0\0\0", 16);
    put("f32", "\0\0\x0d\2\0\0\0\1\0\0\0\1\x40\x20\0\0", 16);
    th_tensor *t = th_idx_read(in_folder("i16"));
    assert_int_equal(th_dtype_of(t), TH_INT16);
    assert_int_equal(((int16_t *)th_data_ptr(t))[0], -2);
    assert_int_equal(((int16_t *)th_data_ptr(t))[1], 258);
    assert_true(th_item(th_idx_read(in_folder("f64"))) == 1.5);
    assert_true(th_item(th_idx_read(in_folder("f32"))) == 2.5);
}

static void test_fashion_mnist(void **state)
{
    (void)state;
    const char *root = "/usr/share/datasets/fashion-mnist";
    char images[128], labels[128];
    snprintf(images, sizeof images, "%s/t10k-images-idx3-ubyte", root);
    snprintf(labels, sizeof labels, "%s/t10k-labels-idx1-ubyte", root);
    if (access(root, R_OK) != 0) skip();
    TH_SCOPE();
    th_sample sample;
    th_dataset *set = th_dataset_idx(images, labels, .mean = TH_DOUBLES(0.1307), .std = TH_DOUBLES(0.3081));
    assert_non_null(set);
    assert_int_equal(th_dataset_len(set), 10000);
    assert_int_equal(th_dataset_get(set, -1, &sample), TH_OK);
    assert_int_equal(th_numel(sample.data[0]), 784);
    assert_int_equal(th_dim(sample.data[0]), 3);
    assert_int_equal(th_dim(sample.data[1]), 0);
    assert_int_equal(th_item_int(sample.data[1]), 5);
    th_dataset_free(set);
}

/* No file makes the reader crash or leak: every cut and every single flipped byte of two files. */
static void test_cuts_and_flips(void **state)
{
    (void)state;
    uint8_t copy[4096];
    for (int gzip = 0; gzip < 2; gzip++) {
        size_t n = images_of(bytes, 4), m = gzip ? gzipped(bytes, n, packed, sizeof packed) : n;
        memcpy(copy, gzip ? packed : bytes, m);
        for (size_t i = 0; i < m; i++) {
            th__idx idx;
            assert_int_not_equal(th__idx_decode("cut", copy, i, &idx), TH_OK);
            th_error_clear();
            copy[i] ^= 0x41;
            if (th__idx_decode("flip", copy, m, &idx) == TH_OK) th__idx_free(&idx);
            th_error_clear();
            copy[i] ^= 0x41;
        }
    }
}

static int start(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/cfabric-idx-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int finish(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

#define T(name) cmocka_unit_test_teardown(name, no_leftovers)
int main(void)
{
    const struct CMUnitTest tests[] = {T(test_plain_and_gzip_by_contents),
                                       T(test_wrong_magic),
                                       T(test_wrong_length),
                                       T(test_bad_gzip),
                                       T(test_images_and_labels),
                                       T(test_other_spellings),
                                       T(test_every_type),
                                       T(test_fashion_mnist),
                                       T(test_cuts_and_flips)};
    return cmocka_run_group_tests_name("data.idx", tests, start, finish);
}
