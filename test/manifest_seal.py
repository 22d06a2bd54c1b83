"""The checksum that ends a manifest.json: xxHash64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md)."""
MASK = 2 ** 64 - 1
P1, P2, P3, P4, P5 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def rotate(x, bits):
    return (x << bits | x >> (64 - bits)) & MASK


def mixed(lane, word):
    return rotate((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data):
    """The hash of bytes, with seed 0."""
    lanes, at = [P1 + P2 & MASK, P2, 0, -P1 & MASK], 0
    while at + 32 <= len(data):
        words = (int.from_bytes(data[at + 8 * i:at + 8 * i + 8], "little") for i in range(4))
        lanes = [mixed(lane, word) for lane, word in zip(lanes, words)]
        at += 32
    if at:
        h = sum(rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            h = ((h ^ mixed(0, lane)) * P1 + P4) & MASK
    else:
        h = P5
    h = h + len(data) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ mixed(0, int.from_bytes(data[at:at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ int.from_bytes(data[at:at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * P5 & MASK, 11) * P1 & MASK
    for shift, factor in ((33, P2), (29, P3)):
        h = (h ^ h >> shift) * factor & MASK
    return h ^ h >> 32


def reseal(path, replacements):
    """Replaces texts in a manifest, each of which must be there once, and its checksum."""
    body, begin, end = path.read_text().rpartition(',\n  "xxh64": "')
    assert begin and end[16:] == '"\n}\n' and f"{xxh64(body.encode()):016x}" == end[:16], end
    for old, new in replacements.items():
        assert body.count(old) == 1, old
        body = body.replace(old, new)
    path.write_text(f'{body}{begin}{xxh64(body.encode()):016x}{end[16:]}')
