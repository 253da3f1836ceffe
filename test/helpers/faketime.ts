import { existsSync, readdirSync } from 'node:fs'

/** The library that moves the clock of the process that preloads it; undefined where there is none. */
export function findFaketime(): string | undefined {
  return readdirSync('/usr/lib')
    .map((folder) => `/usr/lib/${folder}/faketime/libfaketimeMT.so.1`)
    .find((path) => existsSync(path))
}
