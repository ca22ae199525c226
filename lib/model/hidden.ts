/** How a secret is shown to who may not see it; posted back, it is no new value. */
export const hidden = '********'
