// Loaded before a program: kills it when it has changed the disk CUT_AFTER times, as a power cut would.
import fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import process from 'node:process'

let left = Number(process.env.CUT_AFTER)
for (const name of [
  'copyFileSync',
  'fsyncSync',
  'mkdirSync',
  'renameSync',
  'rmSync',
  'symlinkSync',
]) {
  const call = fs[name]
  fs[name] = (...args) => {
    if (left-- <= 0) process.kill(process.pid, 'SIGKILL')
    return call(...args)
  }
}
syncBuiltinESMExports()
