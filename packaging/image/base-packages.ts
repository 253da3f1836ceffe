import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { basename, join } from 'node:path'
import process from 'node:process'
import type { Component } from '../components.ts'
import { CACHE, run } from '../project.ts'
import type { Target } from '../target.ts'
import base from './base.json' with { type: 'json' }

/** A Debian package in the image, pinned to its bytes. */
export interface BasePackage {
  readonly name: string
  readonly version: string
  /** SPDX expression of the files that the image takes from it. */
  readonly license: string
  /** Path on a mirror. */
  readonly path: string
  readonly sha256: string
}

export const RENEW = 'tsx packaging/image/renew-base.ts'

export function basePackages({ debian }: Target): readonly BasePackage[] {
  return base.packages[debian]
}

/** As the bill of materials lists it. */
export function componentOf(
  { name, version, license, sha256 }: BasePackage,
  { debian }: Target,
): Component {
  const qualifiers = `arch=${debian}&distro=debian-${base.release}`
  return {
    name,
    version,
    license,
    integrity: `sha256-${Buffer.from(sha256, 'hex').toString('base64')}`,
    notices: [],
    purl: `pkg:deb/debian/${encodeURIComponent(name)}@${encodeURIComponent(version)}?${qualifiers}`,
  }
}

/** Unpacks the package into a folder. Returns its control text. */
export function unpackBase(pinned: BasePackage, folder: string): string {
  const path = fetchDeb(pinned)
  mkdirSync(folder, { recursive: true })
  run('dpkg-deb', ['--extract', path, folder])
  return run('dpkg-deb', ['--field', path])
}

/** From the cache, else from the mirror; throws when the bytes are not the pinned ones. */
function fetchDeb({ name, version, path, sha256 }: BasePackage): string {
  const cached = join(CACHE, decodeURIComponent(basename(path)))
  if (existsSync(cached) && sha256Of(cached) === sha256) return cached
  mkdirSync(CACHE, { recursive: true })
  const mirror = process.env.IMAGE_MIRROR ?? base.mirror
  const got = `${cached}.part`
  rmSync(got, { force: true })
  try {
    run('/usr/lib/apt/apt-helper', ['download-file', `${mirror}/${path}`, got, `SHA256:${sha256}`])
  } catch (error) {
    throw new Error(
      `Cannot get ${name} ${version} from ${mirror}: a mirror drops old versions. Write the newest ones to ` +
        `base.json (${RENEW}), or put the file, for example from snapshot.debian.org, into ${CACHE}.`,
      { cause: error },
    )
  }
  renameSync(got, cached)
  return cached
}

function sha256Of(path: string): string {
  return createHash('sha256').update(readFileSync(path)).digest('hex')
}
