/* checkpoint/format/zip_layout.h: the numbers of the zip format that reader and writer share. */
#ifndef FABRIC_CHECKPOINT_ZIP_LAYOUT_H
#define FABRIC_CHECKPOINT_ZIP_LAYOUT_H

#define TH__ZIP_LOCAL 0x04034b50u
#define TH__ZIP_CENTRAL 0x02014b50u
#define TH__ZIP_END 0x06054b50u
#define TH__ZIP_END64 0x06064b50u
#define TH__ZIP_LOCATOR64 0x07064b50u
#define TH__ZIP_COMMENT "cfabric crc32="

enum {
    TH__ZIP_LOCAL_SIZE = 30,
    TH__ZIP_CENTRAL_SIZE = 46,
    TH__ZIP_END_SIZE = 22,
    TH__ZIP_END64_SIZE = 56,
    TH__ZIP_LOCATOR64_SIZE = 20,
    TH__ZIP_COMMENT_SIZE = sizeof TH__ZIP_COMMENT - 1 + 8,
    TH__ZIP_ALIGN = 64
};

#endif
