console.log('page')
