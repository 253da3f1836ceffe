import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, normalize } from 'node:path'

/** Every file of a source tree, by its path from the root, with the files that it imports. */
export type House = ReadonlyMap<string, readonly string[]>

/** Floors of a folder, top first; a folder or file that is not named belongs to the hall on top. */
export type Floors = Readonly<Record<string, readonly (readonly string[])[]>>

/** Imports of types count: they too say who has to know whom. */
const IMPORT = /(?:from|import)\s*\(?\s*'(\.[^']+)'/g

export function readHouse(root: string): Map<string, string[]> {
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
  const sources = files.filter((file) => file.endsWith('.ts')).sort()
  return new Map(
    sources.map((file) => {
      const imports = readFileSync(join(root, file), 'utf8').matchAll(IMPORT)
      const targets = Array.from(imports, ([, path = '']) => normalize(join(dirname(file), path)))
      return [file, Array.from(new Set(targets))]
    }),
  )
}

/** The same house with one more import. */
export function withImport(house: House, from: string, to: string): House {
  return new Map(house).set(from, [...(house.get(from) ?? []), to])
}

/** The folders right inside of `folder` ('' for the root). */
export function roomsIn(house: House, folder: string): string[] {
  const inside = Array.from(house.keys(), (file) => partBelow(file, folder))
  const rooms = inside.filter((part) => part !== undefined && !part.endsWith('.ts'))
  return Array.from(new Set(rooms as string[])).sort()
}

/** Files that stand in the folder itself. */
export function looseIn(house: House, folder: string): string[] {
  return Array.from(house.keys()).filter((file) => dirname(file) === (folder || '.'))
}

/** All folders that hold files. */
export function foldersOf(house: House): string[] {
  return Array.from(new Set(Array.from(house.keys(), (file) => dirname(file))))
}

/** Imports that go up or sideways between the floors of any folder that has floors. */
export function wrongWays(house: House, floors: Floors): string[] {
  return Object.entries(floors).flatMap(([folder, storeys]) => {
    const hall = -1
    const floorOf = (part: string) => {
      const floor = storeys.findIndex((rooms) => rooms.includes(part))
      return floor === -1 && part.endsWith('.ts') ? hall : floor
    }
    return edgesOf(house).flatMap(([from, to]) => {
      const [a, b] = [partBelow(from, folder), partBelow(to, folder)]
      if (a === undefined || b === undefined || a === b) return []
      const [above, below] = [floorOf(a), floorOf(b)]
      const isDown = above < below || (above === hall && below === hall)
      return isDown ? [] : [`${from} -> ${to}`]
    })
  })
}

/** Rooms of a folder with floors that stand on none, and names of floors that are no room. */
export function unplaced(house: House, floors: Floors): string[] {
  return Object.entries(floors).flatMap(([folder, storeys]) => {
    const placed = storeys.flat()
    const parts = new Set(Array.from(house.keys(), (file) => partBelow(file, folder)))
    const homeless = roomsIn(house, folder).filter((room) => !placed.includes(room))
    const missing = placed.filter((name) => !parts.has(name))
    return [...homeless, ...missing].map((name) => join(folder, name))
  })
}

/** Files that import each other in a circle, however long. */
export function fileCircles(house: House): string[][] {
  return circlesOf(edgesOf(house))
}

/**
 * Rooms that import each other in a circle. A room is a folder; where a folder has rooms inside, its
 * loose files are a hall, in which each file stands for itself.
 */
export function roomCircles(house: House): string[][] {
  const folders = foldersOf(house)
  const isHall = (folder: string) =>
    folder === '.' || folders.some((other) => other.startsWith(`${folder}/`))
  const roomOf = (file: string) => (isHall(dirname(file)) ? file : dirname(file))
  const edges = edgesOf(house).map(([from, to]): Edge => [roomOf(from), roomOf(to)])
  return circlesOf(edges.filter(([from, to]) => from !== to))
}

type Edge = readonly [from: string, to: string]

function edgesOf(house: House): Edge[] {
  return Array.from(house).flatMap(([from, targets]) => targets.map((to): Edge => [from, to]))
}

/** The folder or file right inside of `folder` through which the path leads. */
function partBelow(path: string, folder: string): string | undefined {
  if (folder === '') return path.split('/')[0]
  return path.startsWith(`${folder}/`) ? path.slice(folder.length + 1).split('/')[0] : undefined
}

/** What can reach itself, in groups whose members reach each other. */
function circlesOf(edges: readonly Edge[]): string[][] {
  const targets = new Map<string, string[]>()
  for (const [from, to] of edges) targets.set(from, [...(targets.get(from) ?? []), to])
  const reachable = new Map<string, Set<string>>()
  for (const start of targets.keys()) {
    const seen = new Set<string>()
    const waiting = [...(targets.get(start) ?? [])]
    for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
      if (seen.has(next)) continue
      seen.add(next)
      waiting.push(...(targets.get(next) ?? []))
    }
    reachable.set(start, seen)
  }
  const onCircle = Array.from(targets.keys()).filter((name) => reachable.get(name)?.has(name))
  const meet = (a: string, b: string) => reachable.get(a)?.has(b) && reachable.get(b)?.has(a)
  const groups = onCircle.map((name) => onCircle.filter((other) => meet(name, other)).sort())
  return groups.filter(([first], index) => onCircle[index] === first)
}
