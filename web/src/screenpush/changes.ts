/** Finds the tiles of a picture that have changed. */

/** The pixels of a picture, four bytes each. */
export interface Pixels {
    data: Uint32Array;
    width: number;
    height: number;
}

/** The numbers of the tiles that differ, in rows from the top left; undefined if the sizes differ. */
export function changedTiles(before: Pixels, now: Pixels, side: number): number[] | undefined {
    if (before.width !== now.width || before.height !== now.height) {
        return undefined;
    }
    const columns = Math.ceil(now.width / side);
    const changed: number[] = [];
    for (let top = 0; top < now.height; top += side) {
        const found = new Set<number>();
        for (let y = top; y < Math.min(top + side, now.height); y++) {
            markRow(before, now, y, side, found);
            if (found.size === columns) {
                break;
            }
        }
        const first = (top / side) * columns;
        changed.push(...[...found].sort((one, other) => one - other).map((column) => first + column));
    }
    return changed;
}

/** Adds the columns of tiles that differ in row `y`. */
function markRow(before: Pixels, now: Pixels, y: number, side: number, found: Set<number>): void {
    const start = y * now.width;
    for (let left = 0, column = 0; left < now.width; left += side, column++) {
        if (found.has(column)) {
            continue;
        }
        const end = start + Math.min(left + side, now.width);
        for (let at = start + left; at < end; at++) {
            if (before.data[at] !== now.data[at]) {
                found.add(column);
                break;
            }
        }
    }
}

/** The upper left corner of tile `number` in a picture of this width. */
export function corner(number: number, side: number, width: number): { x: number; y: number } {
    const columns = Math.ceil(width / side);
    return { x: (number % columns) * side, y: Math.floor(number / columns) * side };
}
