import { readdirSync, readFileSync } from 'node:fs'
import { getHeapStatistics } from 'node:v8'
import type { Problem } from '../problem.ts'

/** Resource that is too scarce to serve visitors. */
export type Shortage = 'descriptors' | 'memory'

/** `enough`, or the exhausted resource. */
export type Resources =
  | { readonly name: 'enough' }
  | { readonly name: Shortage; readonly problem: Problem }

const REMEDIES: Record<Shortage, string> = {
  descriptors:
    'Raise the limit of open files (LimitNOFILE= in the unit), or find the clients that hold many connections.',
  memory: 'Free memory on the device, or raise MemoryMax= of the unit. Then restart the agent.',
}

/** Result of one check of the process. */
export interface Usage {
  /** Undefined: no descriptor was left for the check. */
  readonly descriptors: number | undefined
  readonly maxDescriptors: number
  /** Bytes that the process may still allocate. */
  readonly freeMemory: number
  readonly heapUsed: number
  readonly maxHeap: number
}

/** A visitor needs two descriptors, one per side. */
const FREE_DESCRIPTORS = 8
/** Less free memory, in bytes, is a shortage. */
const FREE_MEMORY = 16 * 1_048_576
/** Share of the heap limit from which the heap counts as full. */
const FULL_HEAP = 0.95

/** A short shortage is reported for this time, because it affects visitors in the meantime. */
const HELD_MS = 15_000

/** Evaluates the result of one check. */
export function judgeUsage(usage: Usage): Resources {
  const { descriptors, maxDescriptors, freeMemory, heapUsed, maxHeap } = usage
  if (descriptors === undefined || descriptors > maxDescriptors - FREE_DESCRIPTORS) {
    return shortOf(
      'descriptors',
      `${descriptors ?? 'all'} of ${maxDescriptors} open files are in use`,
    )
  }
  const freeMb = Math.round(freeMemory / 1_048_576)
  if (freeMemory < FREE_MEMORY) return shortOf('memory', `${freeMb} MB of memory left`)
  if (heapUsed < maxHeap * FULL_HEAP) return { name: 'enough' }
  return shortOf('memory', `the heap of ${Math.round(maxHeap / 1_048_576)} MB is full`)
}

function shortOf(name: Shortage, detail: string): Resources {
  const remedy = REMEDIES[name]
  return { name, problem: { reason: 'resources', detail, remedy, permanent: false } }
}

/** Checks this process. */
export function readUsage(): Usage {
  const { used_heap_size: heapUsed, heap_size_limit: maxHeap } = getHeapStatistics()
  const freeMemory = process.availableMemory?.() ?? Number.POSITIVE_INFINITY
  return { ...readDescriptors(), freeMemory, heapUsed, maxHeap }
}

function readDescriptors(): Pick<Usage, 'descriptors' | 'maxDescriptors'> {
  try {
    // One of them is the folder itself.
    const descriptors = readdirSync('/proc/self/fd').length - 1
    const [, soft] =
      /^Max open files\s+(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? []
    lastMax = soft === undefined ? Number.POSITIVE_INFINITY : Number(soft)
    return { descriptors, maxDescriptors: lastMax }
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    const isOut = code === 'EMFILE' || code === 'ENFILE'
    // Only Linux has this information.
    return { descriptors: isOut ? undefined : 0, maxDescriptors: lastMax }
  }
}

let lastMax = Number.POSITIVE_INFINITY

export interface ResourceWatchOptions {
  readonly read?: () => Usage
  /** Monotonic time, in milliseconds. */
  readonly now: () => number
}

/** Current or recent shortage of the process. */
export class ResourceWatch {
  readonly #options: ResourceWatchOptions
  #current: Resources = { name: 'enough' }
  #seenAt = 0

  constructor(options: ResourceWatchOptions) {
    this.#options = options
  }

  get current(): Resources {
    return this.#current
  }

  /** Checks the process. Returns true if the state has changed. */
  check(): boolean {
    const { read = readUsage, now } = this.#options
    return this.#note(judgeUsage(read()), now())
  }

  /**
   * Records that a connection failed for lack of a file descriptor. Returns true if the state has changed.
   */
  exhausted(): boolean {
    const { read = readUsage, now } = this.#options
    return this.#note(judgeUsage({ ...read(), descriptors: undefined }), now())
  }

  #note(seen: Resources, now: number): boolean {
    const before = this.#current.name
    if (seen.name !== 'enough') this.#seenAt = now
    else if (before !== 'enough' && now - this.#seenAt < HELD_MS) return false
    this.#current = seen
    return seen.name !== before
  }
}
