/* cli/consolidate.c: `fabric consolidate`: one file from a sharded checkpoint. Works on files only, without libtorch. */
#include "cli/cli.h"

#include "base/error.h"
#include "base/fs.h"
#include "base/memory.h"
#include "checkpoint/format/consolidate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "fabric consolidate [OPTIONS] CHECKPOINT_FOLDER";
static const char about[] = "  Convert a distributed/sharded checkpoint into a single file that can be loaded\n"
                            "  with `torch.load()`.\n\n"
                            "  Only supports FSDP sharded checkpoints at the moment.";

static int failed(const char *message, const char *path)
{
    fprintf(stderr, "%s: %s\n", message, path);
    return CLI_FAILED;
}

/* The folder's name plus ".consolidated", whatever slashes it ends with. [owned] */
static char *default_output(const char *folder)
{
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    return th__strfmt("%.*s.consolidated", (int)length, folder);
}

static int consolidate(const char *folder, const char *output)
{
    if (!th__path_exists(folder)) return failed("The provided checkpoint folder does not exist", folder);
    if (!th__is_dir(folder))
        return failed("The provided checkpoint path must be a folder, containing the checkpoint shards", folder);
    char *extra = th__path_join(folder, "meta.pt");
    bool ours = extra != NULL && th__is_file(extra);
    free(extra);
    if (!ours)
        return failed("Only FSDP-sharded checkpoints saved with Lightning are supported for consolidation. The provided folder "
                      "is not in that format",
                      folder);
    if (th__path_exists(output))
        return failed("The path for the converted checkpoint already exists. Choose a different path by providing "
                      "`--output_file` or move/delete the file first",
                      output);
    return th__consolidate(folder, output) == TH_OK ? CLI_OK : CLI_FAILED;
}

int cli_consolidate(int argc, char **argv)
{
    const char *given = NULL;
    const cli_option options[] = {
        {"--output-file", "PATH",
         "Path to the file where the converted checkpoint should be saved. The file should not already exist. If no path is "
         "provided, "
         "the file will be saved next to the input checkpoint folder with the same name and a '.consolidated' suffix.",
         NULL, NULL, &given},
        {0},
    };
    th__strings rest = {0};
    int code = CLI_OK;
    if (cli_parse(argc, argv, options, usage, about, &rest, &code)) {
        if (rest.count == 0) {
            code = cli_usage_error(usage, "consolidate", "Missing argument 'CHECKPOINT_FOLDER'.");
        } else {
            char *preset = default_output(rest.items[0]);
            code = preset == NULL ? CLI_FAILED : consolidate(rest.items[0], given != NULL ? given : preset);
            free(preset);
        }
    }
    th__strings_free(&rest);
    return code;
}
