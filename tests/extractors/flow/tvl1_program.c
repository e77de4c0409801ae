/* The TV-L1 kernel as a program, for a processor that has no Python here: `PROGRAM variants` prints their names, and
 * `PROGRAM INPUT OUTPUT` improves the flow of one scale. INPUT has three numbers of 32 bits, width, height and variant,
 * then four planes of floats, i0, i1, u1 and u2; OUTPUT gets u1 and u2.
 */

#include <stdio.h>
#include <stdlib.h>

#include "tvl1_variants.h"

static int solve_file(const char *input, const char *output) {
    int32_t header[3];
    FILE *file = fopen(input, "rb");
    if (!file || fread(header, sizeof(header), 1, file) != 1)
        return 1;
    const int w = header[0], h = header[1];
    const size_t plane = (size_t)w * h;
    float *planes = malloc(4 * plane * sizeof(float));
    void *workspace = malloc(workspace_bytes(w, h));
    if (!planes || !workspace || fread(planes, sizeof(float), 4 * plane, file) != 4 * plane || header[2] >= variant_count)
        return 2;
    memset(workspace, 0xff, workspace_bytes(w, h)); /* NaN, which would spread if it were read */
    solve_in(workspace, header[2], planes, planes + plane, planes + 2 * plane, planes + 3 * plane, w, h);
    fclose(file);
    file = fopen(output, "wb");
    return !file || fwrite(planes + 2 * plane, sizeof(float), 2 * plane, file) != 2 * plane || fclose(file) ? 3 : 0;
}

int main(int count, char **words) {
    find_variants();
    if (count == 3)
        return solve_file(words[1], words[2]);
    for (int i = 0; i < variant_count; i++)
        puts(variants[i].name);
    return 0;
}
