import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import process from 'node:process'
import { ROOT, readJson, readManifest, run } from './project.ts'

/** Paths of the packages that are in the bundle, such as `node_modules/zod`, sorted. */
export type BundledPackages = readonly string[]

/**
 * Runs the build of package.json into another folder, without source maps: they are two thirds of it,
 * and nobody reads them on a device.
 */
export function bundleInto(folder: string): BundledPackages {
  const { build = '' } = readManifest().scripts
  const work = mkdtempSync(join(tmpdir(), 'device-agent-bundle-'))
  const metafile = join(work, 'meta.json')
  const script = build
    .replaceAll(/(?<=[\s=])dist(?=[\s/]|$)/g, folder)
    .replace('--sourcemap', `--metafile=${metafile}`)
  if (!script.includes(metafile) || !script.includes(`--outdir=${folder}`)) {
    throw new Error('the build script has changed: where does it put the bundle and its map?')
  }
  try {
    const path = `${join(ROOT, 'node_modules/.bin')}:${process.env.PATH}`
    run('sh', ['-c', script], { cwd: ROOT, env: { PATH: path } })
    const { inputs } = readJson(metafile) as { inputs: Record<string, unknown> }
    return packagesOf(Object.keys(inputs))
  } finally {
    rmSync(work, { recursive: true, force: true })
  }
}

function packagesOf(files: readonly string[]): BundledPackages {
  const folder = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/
  const found = files.map((file) => folder.exec(file)?.[0]).filter((path) => path !== undefined)
  return [...new Set(found)].sort()
}
