# Two Vulkan drivers that need no GPU, and the validation layer, for whatever runs on the backend `vulkan`: Mesa's
# lavapipe, and SwiftShader. Debian has no package of SwiftShader alone. It is part of chromium's, so where that isn't
# installed its package is fetched (32 MB) and the driver is unpacked under the target directory. Sourced after
# workspace.sh.
# shellcheck shell=bash disable=SC2034

arch=$(uname -m)
need "/usr/share/vulkan/icd.d/lvp_icd.$arch.json" mesa-vulkan-drivers libvulkan1
need /usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json vulkan-validationlayers

SWIFTSHADER=/usr/lib/chromium
if [[ ! -e $SWIFTSHADER/vk_swiftshader_icd.json ]]; then
    SWIFTSHADER=$TARGET_DIR/swiftshader
    if [[ ! -e $SWIFTSHADER/vk_swiftshader_icd.json ]]; then
        command -v apt-get >/dev/null || die 'SwiftShader is missing, and there is no apt-get to fetch it with (Debian: chromium-common)'
        say "unpacking SwiftShader from chromium-common into $SWIFTSHADER"
        package=$(mktemp -d)
        apt_get update -qq
        # Said at length even where it works: that apt fetches into this directory as root.
        (cd "$package" && apt-get download -qq chromium-common 2>log) || die "apt-get cannot fetch chromium-common: $(<"$package/log")"
        mkdir -p "$package/driver" "$SWIFTSHADER"
        dpkg-deb --fsys-tarfile "$package"/chromium-common_*.deb | tar -x -C "$package/driver" --strip-components=4 \
            ./usr/lib/chromium/libvk_swiftshader.so ./usr/lib/chromium/vk_swiftshader_icd.json ||
            die 'chromium-common holds no SwiftShader any more'
        # What names the driver last: it is there only where the rest is.
        mv "$package/driver/libvk_swiftshader.so" "$SWIFTSHADER"
        mv "$package/driver/vk_swiftshader_icd.json" "$SWIFTSHADER"
        rm -rf "$package"
    fi
fi

# Beside the drivers that are installed; the two others would replace them.
unset VK_DRIVER_FILES VK_ICD_FILENAMES
VK_ADD_DRIVER_FILES=$(realpath "$SWIFTSHADER")/vk_swiftshader_icd.json
export VK_ADD_DRIVER_FILES

# The conformance suite opens its devices with the layer, and fails where it complains.
export CONFORMANCE_VALIDATION=1
