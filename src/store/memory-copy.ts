import { statSync } from 'node:fs'
import { inspect } from './damage.ts'
import { checkOf, gather, type SoundOptions } from './evidence.ts'
import type { SoundConnection } from './heal.ts'
import { openImage } from './image.ts'
import { rebuild } from './rebuild.ts'
import { decide } from './recovery.ts'

/**
 * The last state of a database that cannot be opened where it lies, as a copy in memory.
 * Undefined when neither the file nor another copy of it is sound.
 */
export function openMemoryCopy(options: SoundOptions): SoundConnection | undefined {
  const { path } = options
  const check = { ...checkOf(options), wasInitialised: true }
  const image = openImage(path)
  const found = image ? inspect(image, check) : lacking(path)
  const recovery = decide(gather(options, found))
  if (recovery.kind === 'use' && image) return { connection: image, healing: recovery.healing }
  image?.close()
  if (recovery.kind === 'use' || recovery.healing.copy === 'none') return undefined
  const { connection, lost } = rebuild({ ...options, ...recovery })
  const { healing } = recovery
  return { connection, healing: { ...healing, missing: healing.missing + lost } }
}

function lacking(path: string) {
  const stat = statSync(path, { throwIfNoEntry: false })
  if (!stat) return 'missing'
  return stat.size === 0 ? 'empty' : 'corrupt'
}
