// Copies images and labels in a given order, 8 of each a block; a thread has a pixel.

constexpr unsigned ROWS = 8;
constexpr unsigned PIXELS = 64;

extern "C" __global__ void gather(const unsigned *order, const float *images, const unsigned *labels, float *ordered_images,
                                  unsigned *ordered_labels, size_t order_bytes, size_t images_bytes, size_t labels_bytes,
                                  size_t ordered_images_bytes, size_t ordered_labels_bytes) {
    size_t known = min(images_bytes / (PIXELS * sizeof(float)), labels_bytes / sizeof(unsigned));
    size_t wanted = min(min(order_bytes, ordered_labels_bytes) / sizeof(unsigned), ordered_images_bytes / (PIXELS * sizeof(float)));
    unsigned pixel = threadIdx.x;
    size_t first = size_t(ROWS) * blockIdx.x;
    size_t last = min(first + ROWS, wanted);
    for (size_t row = first; row < last; row++) {
        unsigned chosen = order[row];
        if (chosen >= known) {
            continue;
        }
        ordered_images[row * PIXELS + pixel] = images[size_t(chosen) * PIXELS + pixel];
        if (pixel == 0) {
            ordered_labels[row] = labels[chosen];
        }
    }
}
