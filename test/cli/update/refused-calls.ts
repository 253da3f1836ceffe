import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'

type Call = (...args: unknown[]) => unknown

/** Runs it while the system refuses these calls with EROFS, where `isRefused` says so of the first argument. */
export function refusing<R>(
  names: readonly (keyof typeof fs)[],
  isRefused: (first: unknown) => boolean,
  run: () => R,
): R {
  const writable = fs as unknown as Record<string, Call>
  const whole = names.map((name) => [name, writable[name]] as const)
  for (const [name, call] of whole) {
    writable[name] = (...args) => {
      if (isRefused(args[0])) throw new Error(`EROFS: ${name}`)
      return call?.(...args)
    }
  }
  syncBuiltinESMExports()
  try {
    return run()
  } finally {
    Object.assign(writable, Object.fromEntries(whole))
    syncBuiltinESMExports()
  }
}
