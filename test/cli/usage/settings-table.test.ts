import { describe, expect, it } from 'vitest'
import { settingRows } from '../../../src/cli/usage/settings-table.ts'
import { expectTable } from '../../helpers/document-part.ts'

describe('settingRows', () => {
  it('has a meaning for each setting', () => {
    expect(settingRows().filter((row) => row.meaning === '')).toEqual([])
    expect(settingRows()).toContainEqual({
      name: 'GATEWAY_HTTP_LISTEN',
      fallback: '127.0.0.1:8080',
      isComputed: false,
      meaning: 'host:port of the public HTTP ingress',
    })
  })

  it('is the table of docs/reference/settings.md', () => {
    const rows = settingRows().map(({ name, fallback, meaning }) => {
      return [`\`${name}\``, fallback === '' ? '' : `\`${fallback}\``, meaning]
    })
    expectTable('docs/reference/settings.md', 'settings', ['name', 'default', 'meaning'], rows)
  })
})
